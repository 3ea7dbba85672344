"""What all task families share: the text of a prompt at a size, made from given random numbers."""

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
    """A prompt before it is tokenised."""

    text: str
    references: tuple[str, ...]
    """What the answer should contain."""
    depth: float | None
    """Where the evidence lies, 0 to 100 (mean over its parts); None if it is everywhere."""
    cluster: str | None = None
    stated: str = ""
    """The references as the first release counts them, behind the text."""
    counted: tuple[str, str] | None = None
    """What the first release counts one by one; None: the text."""


@dataclass(frozen=True)
class Draw:
    """Random numbers: RULER's two streams, and the seed of its orders.

    Both streams start alike for every Python and numpy of today, so that draws in RULER's order are
    RULER's draws.
    """

    rng: Random
    values: np.random.RandomState
    """Where the first release takes the numbers of variable tracking from."""
    order_seed: int | None
    """Seed of every permutation; None: they come from `rng`."""

    @classmethod
    def of(cls, seed: int, order_seed: int | None) -> Draw:
        """Streams that begin as RULER's with `random_seed` seed."""
        return cls(Random(seed), np.random.RandomState(seed % 2**32), order_seed)

    def shuffle(self, items: list[str] | list[int]) -> None:
        """Permutes in place: lists of one length alike, unless each has an order of its own."""
        rng = self.rng if self.order_seed is None else Random(self.order_seed)
        rng.shuffle(items)

    def codes(self, count: int, letters: str, length: int) -> list[str]:
        """`count` distinct strings of that many letters."""
        found: dict[str, None] = {}
        while len(found) < count:
            missing = range(count - len(found))
            found |= dict.fromkeys("".join(self.rng.choices(letters, k=length)) for _ in missing)
        return list(found)


@dataclass(frozen=True)
class Units:
    """How the first release sizes a task's prompts."""

    step: int
    first: int
    reserved: int
    """Tokens of the length that the prompt leaves free."""
    retry: Retry
    """What becomes of a sample that does not fit."""
    most: int | None = None
    """Largest size; None: there is none."""
    least: int = 1


class TextTask(Protocol):
    """One task at one length."""

    new_tokens: int
    """Tokens that are generated."""
    sizes: range
    """Sizes that a search may try: words, lines, blocks or documents."""
    units: Units
    """Sizes of the first release."""

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """Sample number `index`; its tokens grow with `size`."""
        ...


def percent(position: float, last: int) -> float:
    """Depth of `position` where the first is 0 and `last` is at the end."""
    return 100 * position / last if last else 0.0


def numbered(words: Sequence[str]) -> str:
    """The words as a list in one line: 1. one 2. other."""
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))
