"""Types shared by RULER's tasks: prompts before tokenisation, their sizes and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, Protocol

import numpy as np

from lce_core.benchmarks import CellRequest, Prompt, encoded

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
RULER_SEED = 42
"""RULER's `random_seed`, to which the study's seed is added."""

Retry = Literal["redrawn smaller", "redrawn", "smaller"]
"""RULER's reaction to a prompt that is too long: draw a new one a step smaller or of the same size,
or shrink the same draw by a step."""


@dataclass(frozen=True)
class Draft:
    """A prompt before tokenisation."""

    text: str
    references: tuple[str, ...]
    """The score is the fraction of these that the answer contains."""
    depth: float | None
    """Mean position of the answers in per cent of the context; None without a single position."""
    cluster: str | None = None
    """Group name of statistically dependent samples; None if the sample is independent."""
    stated: str = ""
    """The references as text, whose tokens RULER's first release adds to the prompt's length."""
    counted: tuple[str, str] | None = None
    """Two halves of the prompt, if RULER's first release counts their tokens separately."""
    evidence: str = ""
    """Text at `depth` from which the answer follows, if the answer also stands elsewhere."""
    controls: tuple[str, ...] = ()
    """Text without the context and, if the answer has a neighbourhood, with only that context."""

    def prompt(self, request: CellRequest, ids: list[int]) -> Prompt:
        return Prompt(
            np.array(ids, dtype=np.int64),
            " | ".join(self.references),
            self.depth,
            references=self.references,
            cluster=self.cluster,
            evidence=self.evidence,
            controls=encoded(request, *self.controls),
        )


@dataclass(frozen=True)
class Draw:
    """RULER's two random generators, and the seed of its permutations.

    All current releases of Python and numpy reproduce RULER's samples in RULER's order.
    """

    rng: Random
    values: np.random.RandomState
    """Generator that RULER uses only for the numbers in variable tracking."""
    order_seed: int | None
    """Seed of a new generator for every permutation; None draws permutations from `rng`."""

    @classmethod
    def of(cls, seed: int, order_seed: int | None) -> Draw:
        return cls(Random(seed), np.random.RandomState(seed % 2**32), order_seed)

    def shuffle(self, items: list[str] | list[int]) -> None:
        """Permute a list in place; with `order_seed`, lists of equal length are permuted alike."""
        rng = self.rng if self.order_seed is None else Random(self.order_seed)
        rng.shuffle(items)

    def codes(self, count: int, letters: str, length: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            missing = range(count - len(found))
            found |= dict.fromkeys("".join(self.rng.choices(letters, k=length)) for _ in missing)
        return list(found)


@dataclass(frozen=True)
class Units:
    """Prompt sizes that RULER's first release tries: first, first + step, ... up to most."""

    step: int
    first: int
    reserved: int
    """Tokens of the cell's length that the prompt leaves free for the answer."""
    retry: Retry
    most: int | None = None
    """Largest size, limited by the data; None for no limit."""
    least: int = 1


class TextTask(Protocol):
    """One of RULER's tasks at one length, which builds prompts of any size."""

    new_tokens: int
    sizes: range
    """Sizes that `Search` may try: numbers of words, lines, blocks of noise or documents."""
    units: Units

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """Build the prompt of sample `index`; a larger `size` makes a longer prompt."""
        ...


def percent(position: float, last: int) -> float:
    return 100 * position / last if last else 0.0


def numbered(words: Sequence[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))
