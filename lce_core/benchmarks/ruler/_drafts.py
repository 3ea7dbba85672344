"""What all task families share: the text of a prompt at a size, made from given random numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's haystack of repeated sentences."""
PERMUTATION_SEED = 42
"""RULER's seed of the orders that all samples share."""


@dataclass(frozen=True)
class Draft:
    """A prompt before it is tokenised."""

    text: str
    references: tuple[str, ...]
    """What the answer should contain."""
    depth: float | None
    """Where the evidence lies, 0 to 100 (mean over its parts); None if it is everywhere."""
    cluster: str | None = None


@dataclass(frozen=True)
class Draw:
    """Random numbers of one sample."""

    index: int
    rng: np.random.Generator
    order: np.random.Generator
    """Of permutations: `rng` itself, or one that starts alike for every sample."""


class TextTask(Protocol):
    """One task at one length."""

    new_tokens: int
    """Tokens that are generated."""
    reserved: int
    """Tokens of the length that the prompt leaves free."""
    sizes: range
    """Sizes that may be tried: words, lines, blocks or documents."""

    def draft(self, size: int, draw: Draw) -> Draft:
        """A prompt; its tokens grow with `size`."""
        ...


def percent(position: float, last: int) -> float:
    """Depth of `position` where the first is 0 and `last` is at the end."""
    return 100 * position / last if last else 0.0
