"""Needles in a haystack: niah_single_1..3, niah_multikey_1..3, niah_multivalue, niah_multiquery.

A needle states the value of a key; values of one or several keys are asked for. The haystack is a
repeated noise line, running text, or lines that are needles themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from lce_core.benchmarks.ruler._drafts import NOISE, Draft, Draw, percent
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.benchmarks.ruler._vocabulary import draw_items

NEEDLE = "One of the special magic {values} for {key} is: {value}."
ONE = (
    "A special magic {values} is hidden within the following text. Make sure to memorize it. I will"
    " quiz you about the {values} afterwards.\n{context}\nWhat is the special magic {values} for"
    " {query} mentioned in the provided text? The special magic {values} for {query} mentioned in"
    " the provided text is"
)
SEVERAL = (
    "Some special magic {values} are hidden within the following text. Make sure to memorize it. I"
    " will quiz you about the {values} afterwards.\n{context}\nWhat are all the special magic"
    " {values} for {query} mentioned in the provided text? The special magic {values} for {query}"
    " mentioned in the provided text are"
)
DEPTHS = np.round(np.linspace(0, 100, 40)).astype(int)
"""Per cent of the sentences of running text."""
SHORT_LENGTH = 4096
"""Below it v1 counts lines in fives."""


@dataclass(frozen=True)
class Needles:
    """What sets the eight tasks apart."""

    haystack: Literal["noise", "text", "needles"]
    keys: str = "words"
    values: str = "numbers"
    num_keys: int = 1
    num_values: int = 1
    num_queries: int = 1


NIAH = {
    "niah_single_1": Needles("noise"),
    "niah_single_2": Needles("text"),
    "niah_single_3": Needles("text", values="uuids"),
    "niah_multikey_1": Needles("text", num_keys=4),
    "niah_multikey_2": Needles("needles"),
    "niah_multikey_3": Needles("needles", keys="uuids", values="uuids"),
    "niah_multivalue": Needles("text", num_values=4),
    "niah_multiquery": Needles("text", num_keys=4, num_queries=4),
}


class Niah:
    """One of the eight tasks; sizes are words of running text, or lines.

    Args:
      needles: which task.
      eval_length: tokens of context.
      units: whether sizes go by RULER's units (500 words, 25 lines) or one by one.
      haystack: running text, where the task has any.
    """

    new_tokens = reserved = 128

    def __init__(
        self, needles: Needles, eval_length: int, *, units: bool, haystack: Haystack | None
    ) -> None:
        self._needles, self._text = needles, haystack
        self._joint = "\n" if haystack is None else " "
        line_unit = 5 if eval_length < SHORT_LENGTH else 25
        step = (500 if needles.haystack == "text" else line_unit) if units else 1
        self.sizes = range(step, eval_length + step, step)

    def draft(self, size: int, draw: Draw) -> Draft:
        """A prompt over `size` words or lines."""
        needles, rng = self._needles, draw.rng
        distractors = size if needles.haystack == "needles" else 0
        keys = draw_items(needles.keys, needles.num_keys + distractors, rng)
        values = draw_items(needles.values, needles.num_keys * needles.num_values, rng)
        asked = rng.permutation(needles.num_keys)[: needles.num_queries].tolist()
        # Facts by key, then by value; `of_key[k]` are the numbers of key k's facts.
        of_key = np.arange(len(values)).reshape(needles.num_keys, needles.num_values)
        facts = [
            self._needle(keys[number // needles.num_values], value)
            for number, value in enumerate(values)
        ]
        order = draw.order.permutation(len(facts)).tolist()
        pieces = self._haystack(size, keys[needles.num_keys :], rng)
        places, depths = self._places(len(pieces), len(facts), rng)
        context = self._joint.join(_inserted(pieces, places, [facts[number] for number in order]))
        wanted = [number for key in asked for number in of_key[key].tolist()]
        text = _prompt(needles.values, [keys[key] for key in asked], len(wanted), context)
        depth = float(np.mean([depths[order.index(number)] for number in wanted]))
        return Draft(text, tuple(values[number] for number in wanted), depth)

    def _haystack(self, size: int, keys: list[str], rng: np.random.Generator) -> list[str]:
        if self._text is not None:
            return self._text.sentences(size)
        if not keys:
            return [NOISE] * size
        values = draw_items(self._needles.values, size, rng)
        return [self._needle(key, value) for key, value in zip(keys, values, strict=True)]

    def _places(
        self, num_pieces: int, num_facts: int, rng: np.random.Generator
    ) -> tuple[list[int], list[float]]:
        """Before which pieces the facts go, in order, and how deep that is."""
        if self._text is not None:
            depths = sorted(rng.choice(DEPTHS, size=num_facts, replace=False).tolist())
            return [num_pieces * depth // 100 for depth in depths], [float(d) for d in depths]
        places = sorted(rng.choice(num_pieces, size=num_facts, replace=False).tolist())
        return places, [percent(place, num_pieces) for place in places]

    def _needle(self, key: str, value: str) -> str:
        return NEEDLE.format(values=self._needles.values, key=key, value=value)


def _prompt(values: str, queries: list[str], num_references: int, context: str) -> str:
    query = queries[0]
    if len(queries) > 1:
        query = f"{', '.join(queries[:-1])}, and {queries[-1]}"
    if num_references == 1:
        return ONE.format(values=values.removesuffix("s"), context=context, query=query)
    return SEVERAL.format(values=values, context=context, query=query)


def _inserted(pieces: list[str], places: list[int], facts: list[str]) -> list[str]:
    """Each fact before the piece at its place."""
    found, start = [], 0
    for place, fact in zip(places, facts, strict=True):
        found += [*pieces[start:place], fact]
        start = place
    return found + pieces[start:]
