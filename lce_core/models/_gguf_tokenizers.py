"""Build tokenizers for transformers from the metadata of GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from tokenizers.pre_tokenizers import PreTokenizer
    from transformers import PreTrainedTokenizerFast

Read = Callable[[str], Any]
"""Function that returns the value of a metadata key."""
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
"""Values of GGUF's `token_type`. Control tokens, such as the end-of-text token, are special.
User-defined tokens never merge with their neighbours."""
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""Character that stands for a space in SentencePiece's pieces."""
_QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Expression of Qwen2's tokenizer.json, of whose matches each is encoded alone."""


def byte_level(read: Read, context: int) -> PreTrainedTokenizerFast:
    """Build a byte-level BPE tokenizer that splits digits, as llama.cpp's `smollm` does.

    `context` is the longest text in tokens, for the tokenizer's warnings.
    """
    from tokenizers import pre_tokenizers

    digits = pre_tokenizers.Digits(individual_digits=True)
    words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    named = {"bos": "bos", "eos": "eos", "unk": "unknown"}
    return _wrapped(_byte_level(read, digits, words), read, context, named)


def qwen2(read: Read, context: int) -> PreTrainedTokenizerFast:
    """Build Qwen2's byte-level BPE tokenizer: normal form C, and words as `_QWEN2` splits them."""
    from tokenizers import Regex, normalizers, pre_tokenizers

    words = pre_tokenizers.Split(Regex(_QWEN2), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built = _byte_level(read, words, to_bytes)
    built.normalizer = normalizers.NFC()
    return _wrapped(built, read, context, {"eos": "eos", "pad": "padding"})


def _byte_level(read: Read, *splits: PreTokenizer) -> Tokenizer:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    tokens = read("tokenizer.ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in read("tokenizer.ggml.merges")]
    built = Tokenizer(models.BPE(vocab=_numbered(tokens), merges=merges))
    built.pre_tokenizer = pre_tokenizers.Sequence(list(splits))
    built.decoder = decoders.ByteLevel()
    _add_special(built, tokens, read("tokenizer.ggml.token_type"))
    return built


def sentencepiece(read: Read, context: int) -> PreTrainedTokenizerFast:
    """Build SentencePiece's BPE tokenizer: no space is added, and unknown characters become bytes.

    The beginning-of-text token is put before a text if special tokens are requested.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, processors

    tokens, types = read("tokenizer.ggml.tokens"), read("tokenizer.ggml.token_type")
    begin = tokens[read("tokenizer.ggml.bos_token_id")]
    numbers = _numbered(tokens)
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
    _add_special(built, tokens, types)
    # GGUF files write spaces in user-defined tokens as " ". SentencePiece looks for these tokens in
    # the normalised text, where a space and the character that stands for it are the same.
    built.add_tokens(
        [
            AddedToken(token, normalized=True)
            for token, kind in zip(tokens, types, strict=True)
            if kind == _USER_DEFINED
        ]
    )
    named = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    return _wrapped(built, read, context, named)


def _merges(scores: Mapping[str, float], numbers: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of pieces that SentencePiece joins, that of the highest score first."""
    for piece in sorted(scores, key=lambda piece: -scores[piece]):
        halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
        yield from sorted(
            (pair for pair in halves if pair[0] in scores and pair[1] in scores),
            key=lambda pair: (numbers[pair[0]], numbers[pair[1]]),
        )


def _numbered(tokens: Sequence[str]) -> dict[str, int]:
    return {token: number for number, token in enumerate(tokens)}


def _add_special(built: Tokenizer, tokens: Sequence[str], types: Sequence[int]) -> None:
    from tokenizers import AddedToken

    built.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, types, strict=True)
            if kind == _CONTROL
        ]
    )


def _wrapped(
    built: Tokenizer, read: Read, context: int, named: Mapping[str, str]
) -> PreTrainedTokenizerFast:
    """Wrap a tokenizer for transformers; `named` maps its names of special tokens to GGUF's."""
    from transformers import PreTrainedTokenizerFast

    tokens = read("tokenizer.ggml.tokens")
    return PreTrainedTokenizerFast(
        tokenizer_object=built,
        model_max_length=context,
        clean_up_tokenization_spaces=False,
        **{
            f"{name}_token": tokens[read(f"tokenizer.ggml.{key}_token_id")]
            for name, key in named.items()
        },
    )
