"""Shared types of all task families: the text of a prompt at a size, and its random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

import numpy as np

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's haystack of repeated sentences."""
RULER_SEED = 42
"""RULER's random_seed; the study's seed is added to it."""

Retry = Literal["redrawn smaller", "redrawn", "smaller"]


@dataclass(frozen=True)
class Draft:
    """A prompt before tokenisation."""

    text: str
    references: tuple[str, ...]
    """Strings that the answer should contain."""
    depth: float | None
    """Position of the text with the answer, 0 to 100 (mean over its parts); None if it has no
    single position."""
    cluster: str | None = None
    stated: str = ""
    """The references as text: the first release counts their tokens with the prompt's."""
    counted: tuple[str, str] | None = None
    """Two parts whose tokens the first release counts separately; None: it counts the whole."""


@dataclass(frozen=True)
class Draw:
    """Random numbers: RULER's two streams, and the seed of its permutations.

    For all current releases of Python and numpy both streams produce the numbers that RULER used,
    so draws in RULER's order reproduce RULER's samples.
    """

    rng: Random
    values: np.random.RandomState
    """Second stream, which RULER uses only for the numbers in variable tracking."""
    order_seed: int | None
    """Seed of every permutation; None takes permutations from `rng`."""

    @classmethod
    def of(cls, seed: int, order_seed: int | None) -> Draw:
        """Return streams that give the same numbers as RULER's with `random_seed` = seed."""
        return cls(Random(seed), np.random.RandomState(seed % 2**32), order_seed)

    def shuffle(self, items: list[str] | list[int]) -> None:
        """Permute a list in place; with `order_seed`, equally long lists are permuted alike."""
        rng = self.rng if self.order_seed is None else Random(self.order_seed)
        rng.shuffle(items)

    def codes(self, count: int, letters: str, length: int) -> list[str]:
        """Return `count` distinct strings of `length` letters."""
        found: dict[str, None] = {}
        while len(found) < count:
            missing = range(count - len(found))
            found |= dict.fromkeys("".join(self.rng.choices(letters, k=length)) for _ in missing)
        return list(found)


@dataclass(frozen=True)
class Units:
    """Rule of RULER's first release for a prompt's size: first, first + step, ... up to most."""

    step: int
    first: int
    reserved: int
    """Tokens that the prompt leaves free for the answer."""
    retry: Retry
    """What happens to a sample that is too long: a new draw one step smaller, a new draw of the
    same size, or the same draw one step smaller."""
    most: int | None = None
    """Largest size; None for no limit."""
    least: int = 1


class TextTask(Protocol):
    """One of RULER's tasks at one length; builds prompts of a given size."""

    new_tokens: int
    """Number of generated tokens."""
    sizes: range
    """Sizes that a search may try: numbers of words, lines, blocks or documents."""
    units: Units
    """Rule of the first release for the sizes."""

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """Build the prompt of sample `index`; a larger `size` gives a longer prompt."""
        ...


def percent(position: float, last: int) -> float:
    """Return `position` in per cent of `last`; 0 if `last` is 0."""
    return 100 * position / last if last else 0.0


def numbered(words: Sequence[str]) -> str:
    """Format the words as a list in one line: 1. one 2. other."""
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))
