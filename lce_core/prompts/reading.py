"""Decode the prompts of one sample, find right answers in their text, and describe them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from lce_core.benchmarks import Prompt, decoded
from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.prompts.rebuilding import RebuiltCell

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class ReadablePrompt:
    """A prompt's token ids and their text."""

    ids: list[int]
    text: str
    """All ids decoded, including special tokens."""
    is_exact: bool
    """True if encoding `text` again yields `ids`."""
    places: list[tuple[int, int]]
    """(start, end) character offsets of each occurrence of a right answer in `text`, ascending; of
    the prompt's evidence if `text` contains no right answer."""
    first_token: int | None
    """Index in `ids` of the token in which the first right answer starts; None if there is none."""


@dataclass(frozen=True)
class ReadableSample:
    """One sample of a finished cell, with its prompts."""

    cell: str
    sample: Mapping[str, Any]
    prompts: list[ReadablePrompt]
    tokenizer: str
    num_samples: int
    inserted_every: int | None
    """Block size of a method that inserts its own token at the end of every block; `prompts` lack
    these. None without such tokens, or if the installed VERSION differs from the cell's."""


def readable_sample(cell: RebuiltCell, sample: int) -> ReadableSample:
    if not 0 <= sample < len(cell.samples):
        raise SpecError(
            "sample",
            f"{sample}",
            f"the number of a sample of {cell.record.name}, 0 to {len(cell.samples) - 1}",
            "choose one of these numbers",
        )
    return ReadableSample(
        cell=cell.record.name,
        sample=cell.samples[sample],
        prompts=[readable(prompt, cell.tokenizer) for prompt in cell.prompts[sample]],
        tokenizer=cell.base_model.known_as,
        num_samples=len(cell.samples),
        inserted_every=_inserted_every(cell),
    )


def readable(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> ReadablePrompt:
    ids: list[int] = prompt.ids.tolist()
    text = decoded(tokenizer, ids)
    places = places_of(prompt.right_answers, text) or places_of((prompt.evidence,), text)
    return ReadablePrompt(
        ids,
        text,
        tokenizer.encode(text, add_special_tokens=False) == ids,
        places,
        _token_at(tokenizer, ids, places[0][0]) if places else None,
    )


def places_of(answers: Sequence[str], text: str) -> list[tuple[int, int]]:
    spelled = [re.escape(one) for one in sorted(set(answers), key=len, reverse=True) if one.strip()]
    if not spelled:
        return []
    # Require a word boundary only where the answer begins or ends with a word character.
    pattern = rf"(?:(?<!\w)|(?!\w))(?:{'|'.join(spelled)})(?:(?!\w)|(?<!\w))"
    return [match.span() for match in re.finditer(pattern, text)]


def to_json(found: ReadableSample) -> dict[str, Any]:
    prompts = [{**asdict(prompt), "size": size(prompt)} for prompt in found.prompts]
    return {**asdict(found), "origin": list(origin(found)), "prompts": prompts}


def origin(found: ReadableSample) -> Iterator[str]:
    yield "Prompts were built again; the sha256 of their token ids matches the cell's record"
    yield f"Token ids decoded by the tokenizer of {found.tokenizer}, special tokens included"
    if found.inserted_every is not None:
        yield f"The method inserts a token after every {found.inserted_every - 1} of these tokens"


def size(prompt: ReadablePrompt) -> str:
    parts = [f"{len(prompt.ids):,} tokens, {len(prompt.text):,} characters"]
    if prompt.first_token is None:
        parts.append("contains no right answer word for word")
    else:
        times = f"{len(prompt.places):,} times" if len(prompt.places) > 1 else "once"
        share = prompt.first_token / len(prompt.ids)
        parts.append(
            f"contains a right answer {times}, first at token {prompt.first_token:,} ({share:.1%})"
        )
    if not prompt.is_exact:
        parts.append("inexact text: encoding it again yields other token ids")
    return "; ".join(parts)


def _token_at(tokenizer: PreTrainedTokenizerBase, ids: list[int], character: int) -> int:
    """Return the index of the token that contains a character of the decoded text.

    Bisects decoded prefixes, because tokenizers report no offsets when decoding.
    """
    low, high = 0, len(ids) - 1
    while low < high:
        middle = (low + high) // 2
        if len(decoded(tokenizer, ids[: middle + 1])) > character:
            high = middle
        else:
            low = middle + 1
    return low


def _inserted_every(cell: RebuiltCell) -> int | None:
    # `from_identity` raises SpecError if the installed VERSION differs from the cell's.
    with suppress(SpecError):
        method = METHODS.from_identity(cell.record.spec["method"])
        insertion = method.insertion(cell.base_model.geometry)
        return None if insertion is None else insertion.block
    return None
