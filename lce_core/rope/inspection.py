"""Describe the effect of a method on each rotated pair, for `lce rope`.

The wavelength of a pair is 2 pi / inv_freq, the number of tokens for one full turn. Training
covered the angles that a pair reaches within the trained context: all angles if the pair makes at
least one full turn, otherwise an arc. A pair that turns beyond this arc within a request
extrapolates.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lce_core.rope import ContextLengths, Frequencies
from lce_core.rope.bound import bounded_length, count_negative

State = Literal["unchanged", "interpolated", "accelerated", "extrapolated", "no rotation"]
""""interpolated" pairs have a lower frequency than in the base model, "accelerated" ones a higher
one. "extrapolated" takes precedence: within the request, the pair reaches untrained angles."""

_ROUNDING = 1e-9
"""Relative difference below which two frequencies or angles count as equal."""


@dataclass(frozen=True)
class Pair:
    """Effect of a method on one rotated pair, by index; pair 0 has the highest frequency.

    Wavelengths are in tokens, infinite without rotation. Turns are those of the base model within
    the trained context and those of the method within the request.
    """

    pair: int
    wavelength_before: float
    wavelength_after: float
    turns_trained: float
    turns_request: float
    state: State
    beyond_bound: bool
    """True if `wavelength_after` exceeds the bound L_theta of its head (`Head.bound`)."""


@dataclass(frozen=True)
class Head:
    """Effect of a method on the pairs of one attention head, or of all heads alike."""

    head: int | None
    """Index of the head; None if all heads share these frequencies."""
    bound: int | None
    """L_theta in tokens (`bounded_length`)."""
    num_negative: int
    """Number of distances from 0 to the request's length with B_m < 0."""
    pairs: tuple[Pair, ...]

    def num(self, state: State) -> int:
        return sum(pair.state == state for pair in self.pairs)


def inspect_frequencies(
    before: Frequencies, after: Frequencies, lengths: ContextLengths
) -> Iterator[Head]:
    """Compare each row of `after`, (pairs,) or (heads, pairs), with the base model's `before`."""
    for number, row in enumerate(np.atleast_2d(after)):
        bound, pairs = bounded_length(row), []
        for index, (old, new) in enumerate(zip(before.tolist(), row.tolist(), strict=True)):
            wavelength = math.tau / new if new else math.inf
            pair = Pair(
                index,
                math.tau / old,
                wavelength,
                lengths.trained * old / math.tau,
                lengths.request * new / math.tau,
                _state(old, new, lengths),
                bound is not None and wavelength > bound,
            )
            pairs.append(pair)
        head = None if after.ndim == 1 else number
        yield Head(head, bound, count_negative(row, lengths.request), tuple(pairs))


def _state(before: float, after: float, lengths: ContextLengths) -> State:
    if after == 0:
        return "no rotation"
    seen, reached = lengths.trained * before, lengths.request * after
    if seen < math.tau and reached > seen * (1 + _ROUNDING):
        return "extrapolated"
    if math.isclose(before, after, rel_tol=_ROUNDING):
        return "unchanged"
    return "interpolated" if after < before else "accelerated"
