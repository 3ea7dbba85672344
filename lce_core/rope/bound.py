"""Bound on how far frequencies distinguish a similar token from a random one: B_m and L_theta.

B_m = sum_i cos(m theta_i), summed over the rotated pairs i of a head with angles theta_i in radians
per token, at the relative distance m in tokens. If the components of queries and keys are
independent and identically distributed, B_m is, up to a positive factor, the expected attention
score of a similar token minus that of a random one (theorem 1). L_theta is the largest distance up
to which B_m stays non-negative (equation 17), base_L the smallest base for which it does up to the
distance L (equation 18).

Every base from some value on reaches a given length L. Below this value, only the bases in many
narrow intervals do, so the infimum of equation 18 depends on which bases are tried.

`ALIASING` and `RESOLVED` are bounds of another kind. They take 1 / base for the lowest frequency,
which is a little higher: a base above the length times `ALIASING` keeps the angle of a pair of that
frequency below one turn, and a base below `RESOLVED` keeps the change of the angle from one token
to the next above the rounding of float32.

Source: Men et al. 2024, arXiv:2405.14591, sections 4.2 and 4.3; Liu 2026, arXiv:2602.10959.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import SpecError
from lce_core.rope import Frequencies

SEARCHED = 1 << 24
"""Default limit of the search for a negative B_m, in tokens."""
ALIASING = 1 / math.tau
RESOLVED = 2.0**23
EXPONENTS = range(17)
"""Exponents e of the bases k * 10^e in `grid`."""

_BLOCK = 512
"""Number of successive distances in a row of the matrix product in `discrimination_runs`."""
_DOUBTFUL = 1e-6
"""Values of B_m closer to zero are computed again with `discrimination`, so that their sign is
right: the error of the faster matrix product stays below 1e-8."""


@dataclass(frozen=True)
class SmallestBase:
    """The smallest base of a grid with B_m >= 0 at every distance up to the wanted length."""

    base: float
    every_from: float | None
    """Smallest base from which on all of the grid, and all above it, provably have B_m >= 0."""


def discrimination(inv_freq: Frequencies, distances: NDArray[np.int64]) -> Frequencies:
    """Return B_m at each distance, (distances,), for the inverse frequencies (pairs,) of a head."""
    angles = np.multiply.outer(distances.astype(np.float64), inv_freq)
    return np.asarray(np.cos(angles).sum(axis=-1))


def discrimination_runs(inv_freq: Frequencies, length: int) -> Iterator[tuple[int, Frequencies]]:
    """Yield (first distance, B_m at the distances from it on), for 0 to `length`.

    The cosine of a sum makes a run one matrix product, which is faster than `discrimination`.
    """
    within = np.multiply.outer(inv_freq, np.arange(_BLOCK, dtype=np.float64))
    near = np.concatenate([np.cos(within), -np.sin(within)])
    first, blocks = 0, 1
    while first <= length:
        starts = first + _BLOCK * np.arange(blocks, dtype=np.float64)
        before = np.multiply.outer(starts, inv_freq)
        sums = (np.concatenate([np.cos(before), np.sin(before)], axis=1) @ near).ravel()
        sums = sums[: length + 1 - first]
        doubtful = np.flatnonzero(np.abs(sums) < _DOUBTFUL)
        sums[doubtful] = discrimination(inv_freq, first + doubtful)
        yield first, sums
        # Most of the tried bases fail at small distances, so start with short runs.
        first, blocks = first + _BLOCK * blocks, min(2 * blocks, 128)


def first_negative(inv_freq: Frequencies, length: int = SEARCHED) -> int | None:
    """Return the smallest distance with B_m < 0; None if there is none from 0 to `length`."""
    for first, sums in discrimination_runs(inv_freq, length):
        negative = np.flatnonzero(sums < 0)
        if negative.size:
            return first + int(negative[0])
    return None


def bounded_length(inv_freq: Frequencies) -> int | None:
    """Return L_theta in tokens; None if B_m is non-negative at all distances up to `SEARCHED`."""
    first = first_negative(inv_freq)
    return None if first is None else first - 1


def count_negative(inv_freq: Frequencies, length: int) -> int:
    return sum(int((sums < 0).sum()) for _, sums in discrimination_runs(inv_freq, length))


def frequencies_of(base: float, dim: int) -> Frequencies:
    """Return inverse frequencies (dim / 2,) of a RoPE base, or raise SpecError."""
    if not base > 1 or not np.isfinite(base):
        raise SpecError("RoPE base", base, "a finite base above 1", "use a model's rope_theta")
    if dim < 2 or dim % 2:
        raise SpecError(
            "rotated elements", dim, "an even number, at least 2", "use a model's rotary dimension"
        )
    return np.asarray(float(base) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim))


def grid(digits: int) -> list[float]:
    """Return all bases above 1 with `digits` significant digits below 10 ** 17, ascending."""
    start = 10 ** (digits - 1)
    written = (f"{k}e{e - digits + 1}" for e in EXPONENTS for k in range(start, 10 * start))
    return [base for base in map(float, written) if base > 1]


def smallest_base(length: int, dim: int, digits: int = 2) -> SmallestBase:
    """Find the smallest base of `grid(digits)` with B_m >= 0 at all distances up to `length`."""
    if length < 1:
        raise SpecError("length", length, "a length of at least 1 token", "choose a longer length")
    bases = grid(digits)
    for base in bases:
        if first_negative(frequencies_of(base, dim), length) is None:
            break
    else:
        raise SpecError(
            f"length {length} with {dim} rotated elements",
            f"a negative B_m for every base up to {bases[-1]:g}",
            "a length up to which some base has no negative B_m",
            "choose a shorter length or more rotated elements",
        )
    return SmallestBase(base, _every_from(bases, dim, length))


def _every_from(bases: list[float], dim: int, length: int) -> float | None:
    safe = None
    for base in reversed(bases):
        inv_freq = frequencies_of(base, dim)
        # Lower bound: up to `length` no pair's cosine falls below that of its largest angle (-1
        # beyond half a turn). The sum of these bounds grows with the base, so if it is
        # non-negative, this base and all larger ones are admissible.
        proven = np.cos(np.minimum(length * inv_freq, np.pi)).sum() >= 0
        if not proven and (safe is None or first_negative(inv_freq, length) is not None):
            return safe
        safe = base
    return safe
