"""Needles in a haystack: niah_single_1..3, niah_multikey_1..3, niah_multivalue, niah_multiquery.

The haystack is a repeated line of noise, running text, or further needles.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Literal

import numpy as np

from lce_core.benchmarks.ruler._drafts import NOISE, Draft, Draw, Units, percent
from lce_core.benchmarks.ruler._haystack import Haystack
from lce_core.benchmarks.ruler._vocabulary import draw_item

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
DEPTHS: list[int] = np.round(np.linspace(0, 100, 40)).astype(int).tolist()
"""RULER's 40 positions of needles in running text, in per cent of its sentences."""
SHORT_LENGTH = 4096
"""RULER's first release adds 5 lines at a time at lengths below 4,096 tokens, else 25."""


@dataclass(frozen=True)
class Needles:
    """Settings of one task: its haystack, and type and number of keys, values and queries."""

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
    """One of the eight tasks; the size of a prompt is its number of words or lines of haystack.

    `v1` has extra spaces and keys that may repeat. `haystack` is running text; None for lines.
    """

    new_tokens = 128

    def __init__(
        self, needles: Needles, eval_length: int, *, v1: bool, haystack: Haystack | None
    ) -> None:
        self._needles, self._v1, self._text = needles, v1, haystack
        self.sizes = range(1, eval_length + 1)
        step, most = 5 if eval_length < SHORT_LENGTH else 25, None
        if haystack is not None:
            step, most = 500, haystack.num_words
        self.units = Units(step, step, self.new_tokens, "redrawn smaller", most)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        needles, taken = self._needles, set[str]()
        keys, values, facts = [], [], []
        for _ in range(needles.num_keys):
            keys.append(self._item(needles.keys, draw.rng, taken))
            values.append([draw_item(needles.values, draw.rng) for _ in range(needles.num_values)])
            facts += [self._needle(keys[-1], value) for value in values[-1]]
        hidden = facts.copy()
        draw.shuffle(hidden)
        if self._text is None:
            lines = self._lines(size, draw.rng, taken)
            context, depths = among_lines(lines, hidden, draw.rng)
        else:
            sentences = self._text.sentences(size)
            context, depths = among_sentences(sentences, hidden, draw.rng, blanks=self._v1)
        queried = draw.rng.sample(range(needles.num_keys), needles.num_queries)
        wanted = [value for key in queried for value in values[key]]
        shown = [self._needle(keys[key], value) for key in queried for value in values[key]]
        at = [depth for depth, fact in zip(depths, hidden, strict=True) if fact in shown]
        text, *controls = (
            _prompt(needles.values, [keys[key] for key in queried], len(wanted), one)
            for one in (context, "", "\n".join(shown))
        )
        return Draft(
            text,
            tuple(wanted),
            float(np.mean(at)),
            stated=" ".join(wanted),
            controls=tuple(controls),
        )

    def _lines(self, size: int, rng: Random, taken: set[str]) -> list[str]:
        needles = self._needles
        if needles.haystack == "noise":
            return [NOISE] * size
        drawn = (
            (self._item(needles.keys, rng, taken), draw_item(needles.values, rng))
            for _ in range(size)
        )
        return [self._needle(key, value) for key, value in drawn]

    def _item(self, kind: str, rng: Random, taken: set[str]) -> str:
        """Draw a key and add it to `taken`; unless v1, draw until it is not yet in `taken`."""
        item = draw_item(kind, rng)
        while item in taken and not self._v1:
            item = draw_item(kind, rng)
        taken.add(item)
        return item

    def _needle(self, key: str, value: str) -> str:
        return NEEDLE.format(values=self._needles.values, key=key, value=value)


def _prompt(values: str, queries: list[str], num_references: int, context: str) -> str:
    query = queries[0]
    if len(queries) > 1:
        query = f"{', '.join(queries[:-1])}, and {queries[-1]}"
    if num_references == 1:
        return ONE.format(values=values.removesuffix("s"), context=context, query=query)
    return SEVERAL.format(values=values, context=context, query=query)


def among_lines(lines: list[str], facts: list[str], rng: Random) -> tuple[str, list[float]]:
    """Insert the facts between lines, the first fact deepest; return (text, depth of each fact)."""
    places = sorted(rng.sample(range(len(lines)), len(facts)), reverse=True)
    found = lines.copy()
    for place, fact in zip(places, facts, strict=True):
        found.insert(place, fact)
    return "\n".join(found), [percent(place, len(lines)) for place in places]


def among_sentences(
    sentences: list[str], facts: list[str], rng: Random, *, blanks: bool
) -> tuple[str, list[float]]:
    """Insert the facts between sentences, the last fact deepest; return (text, depth of each fact).

    `blanks` keeps the additional space of RULER's first release, such as before a fact at depth 0.
    """
    depths = sorted(rng.sample(DEPTHS, len(facts)))
    parts, start = [], 0
    for depth, fact in zip(depths, facts, strict=True):
        # Reproduces RULER's rounding; len * depth / 100 rounds differently.
        place = int(len(sentences) * (depth / 100))
        parts += [" ".join(sentences[start:place]), fact]
        start = place
    parts.append(" ".join(sentences[start:]))
    return " ".join(part for part in parts if part or blanks), [float(depth) for depth in depths]
