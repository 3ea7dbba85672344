"""What a method does to each rotated pair: wavelengths and turns before and after, and the bound.

A pair's wavelength is 2 pi / inv_freq, the tokens in which it turns once. Training showed a pair
the angles from 0 to those of the trained context: all of them where it turned at least once, else
an arc. A request that takes it beyond its arc extrapolates.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lce_core.rope import ContextLengths, Frequencies
from lce_core.rope.bound import bounded_length, count_negative

State = Literal["unchanged", "interpolated", "accelerated", "extrapolated"]
"""Same frequency; a lower one; a higher one; whatever its frequency, a request takes the pair to
angles that training never showed."""

_ROUNDING = 1e-9
"""Relative difference below which two frequencies or angles are the same."""


@dataclass(frozen=True)
class Pair:
    """One rotated pair, before (the base model) and after (the method)."""

    pair: int
    """0 is the fastest."""
    wavelength_before: float
    """In tokens."""
    wavelength_after: float
    """In tokens."""
    turns_trained: float
    """Turns within the trained context before."""
    turns_request: float
    """Turns within the request after."""
    state: State
    beyond_bound: bool
    """The wavelength after is longer than L_theta: the pair finishes no turn within the bound."""


@dataclass(frozen=True)
class Head:
    """The frequencies of one attention head, or of all of them."""

    head: int | None
    """None: all heads have these frequencies."""
    bound: int | None
    """L_theta after, in tokens; None where no distance that was searched has B_m < 0."""
    num_negative: int
    """Distances from 0 to the request's length with B_m < 0."""
    pairs: tuple[Pair, ...]

    def num(self, state: State) -> int:
        """Pairs in that state."""
        return sum(pair.state == state for pair in self.pairs)


def inspect_frequencies(
    before: Frequencies, after: Frequencies, lengths: ContextLengths
) -> Iterator[Head]:
    """What becomes of each pair of each head.

    Args:
      before: inverse frequencies (pairs,) of the base model.
      after: those of the method, (pairs,) for all heads or (heads, pairs).
      lengths: the trained context, and the request that the method's frequencies hold for.
    """
    for number, row in enumerate(np.atleast_2d(after)):
        bound = bounded_length(row)
        pairs = tuple(
            _pair(index, old, new, lengths, bound)
            for index, (old, new) in enumerate(zip(before.tolist(), row.tolist(), strict=True))
        )
        head = None if after.ndim == 1 else number
        yield Head(head, bound, count_negative(row, lengths.request), pairs)


def _pair(
    index: int, before: float, after: float, lengths: ContextLengths, bound: int | None
) -> Pair:
    wavelength = math.tau / after
    return Pair(
        index,
        math.tau / before,
        wavelength,
        lengths.trained * before / math.tau,
        lengths.request * after / math.tau,
        _state(before, after, lengths),
        bound is not None and wavelength > bound,
    )


def _state(before: float, after: float, lengths: ContextLengths) -> State:
    seen, reached = lengths.trained * before, lengths.request * after
    if seen < math.tau and reached > seen * (1 + _ROUNDING):
        return "extrapolated"
    if math.isclose(before, after, rel_tol=_ROUNDING):
        return "unchanged"
    return "interpolated" if after < before else "accelerated"
