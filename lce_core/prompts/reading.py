"""A sample's prompts as people read them: decoded, with the places where the answer stands."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lce_core.benchmarks import Prompt
from lce_core.errors import SpecError
from lce_core.methods import METHODS
from lce_core.prompts.rebuilding import AskedCell

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True)
class ReadablePrompt:
    """A prompt's token ids and what they say."""

    ids: list[int]
    text: str
    """All ids decoded, special tokens included."""
    is_exact: bool
    """Whether the text, encoded again, gives the same ids."""
    places: list[tuple[int, int]]
    """Where a right answer stands: first character, and the one after its last; ascending."""
    first_token: int | None
    """The token in which the first of them begins, counted from 0."""


@dataclass(frozen=True)
class AskedSample:
    """One sample of a finished cell, with what the model was given."""

    cell: str
    """Name of its artifact."""
    sample: Mapping[str, Any]
    """Its row in the store: answer, reference, score, ..."""
    prompts: list[ReadablePrompt]
    tokenizer: str
    """The base model whose tokenizer encoded and decodes."""
    has_digest: bool
    """As `AskedCell.has_digest`."""
    num_samples: int
    """Of the cell."""
    inserted_every: int | None
    """Tokens from one token to the next that the method puts into the text; None: none."""


def asked_sample(cell: AskedCell, sample: int) -> AskedSample:
    """A sample of a cell, its prompts decoded.

    Raises:
      SpecError: the cell has no such sample.
    """
    if not 0 <= sample < len(cell.samples):
        raise SpecError(
            "sample",
            f"{sample}",
            f"the number of a sample of {cell.record.name}, 0 to {len(cell.samples) - 1}",
            "choose one of them",
        )
    return AskedSample(
        cell=cell.record.name,
        sample=cell.samples[sample],
        prompts=[readable(prompt, cell.tokenizer) for prompt in cell.prompts[sample]],
        tokenizer=cell.base_model.known_as,
        has_digest=cell.has_digest,
        num_samples=len(cell.samples),
        inserted_every=_inserted_every(cell),
    )


def readable(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> ReadablePrompt:
    """A prompt, decoded."""
    ids: list[int] = prompt.ids.tolist()
    text = _decoded(tokenizer, ids)
    places = places_of(prompt.right_answers, text)
    return ReadablePrompt(
        ids,
        text,
        tokenizer.encode(text, add_special_tokens=False) == ids,
        places,
        _token_at(tokenizer, ids, places[0][0]) if places else None,
    )


def places_of(answers: Sequence[str], text: str) -> list[tuple[int, int]]:
    """Where an answer stands in a text as words of its own, without overlap."""
    spelled = [re.escape(one) for one in sorted(set(answers), key=len, reverse=True) if one.strip()]
    if not spelled:
        return []
    # No edge of a word is asked for where the answer begins or ends with another character.
    pattern = rf"(?:(?<!\w)|(?!\w))(?:{'|'.join(spelled)})(?:(?!\w)|(?<!\w))"
    return [match.span() for match in re.finditer(pattern, text)]


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: list[int]) -> str:
    # Cleaning up would take blanks away that the model saw.
    text = tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)
    return str(text)


def _token_at(tokenizer: PreTrainedTokenizerBase, ids: list[int], character: int) -> int:
    """The token that a character of the text belongs to: texts of beginnings grow with them."""
    low, high = 0, len(ids) - 1
    while low < high:
        middle = (low + high) // 2
        if len(_decoded(tokenizer, ids[: middle + 1])) > character:
            high = middle
        else:
            low = middle + 1
    return low


def _inserted_every(cell: AskedCell) -> int | None:
    with suppress(SpecError):  # another version of the method: what it inserts is not known
        method = METHODS.from_identity(cell.record.spec["method"])
        insertion = method.insertion(cell.base_model.geometry)
        return None if insertion is None else insertion.block
    return None
