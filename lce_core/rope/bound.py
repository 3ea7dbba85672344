"""How far a table of frequencies tells a similar token from a random one: B_m and L_theta.

B_m = sum_i cos(m theta_i), over the rotated pairs i of a head with angles theta_i in radians per
token, at the relative distance m in tokens. Where queries and keys have independent and identically
distributed components, it is the expected attention score of a similar token over that of a random
one, up to a positive factor (theorem 1). L_theta is the largest distance up to which B_m stays at
or above zero (equation 17), base_L the smallest base that keeps it there up to L (equation 18).

The bases that do so for a length are many narrow intervals and then all bases from some value on,
so the infimum of equation 18 depends on which bases are tried. `smallest_base` tries a stated grid.

Source: Men et al. 2024, arXiv:2405.14591, sections 4.2 and 4.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import SpecError
from lce_core.rope import Frequencies

SEARCHED = 1 << 24
"""Distances that a search for the first negative B_m covers unless told otherwise."""
EXPONENTS = range(17)
"""Powers of ten of a grid's bases."""

_BLOCK = 512
_DOUBTFUL = 1e-6
"""Sums by angle addition are off by less than 1e-8; those this near to zero are summed directly."""


@dataclass(frozen=True)
class SmallestBase:
    """The answer to `smallest_base`."""

    base: float
    every_from: float | None
    """From here on every base of the grid is admissible; None if that is shown for none of them."""


def discrimination(inv_freq: Frequencies, distances: NDArray[np.int64]) -> Frequencies:
    """B_m of one head at each of the distances (distances,), in its number of pairs at most."""
    angles = np.multiply.outer(distances.astype(np.float64), inv_freq)
    return np.asarray(np.cos(angles).sum(axis=-1))


def discrimination_runs(inv_freq: Frequencies, length: int) -> Iterator[tuple[int, Frequencies]]:
    """Yields (first distance, B_m of successive distances) for the distances 0 to `length`.

    By the cosine of a sum, a run is one matrix product; `discrimination` says the same slowly.
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
        # Most bases that are tried fail early, so runs begin short.
        first, blocks = first + _BLOCK * blocks, min(2 * blocks, 128)


def first_negative(inv_freq: Frequencies, length: int = SEARCHED) -> int | None:
    """The smallest distance with B_m < 0, or None if there is none from 0 to `length`."""
    for first, sums in discrimination_runs(inv_freq, length):
        negative = np.flatnonzero(sums < 0)
        if negative.size:
            return first + int(negative[0])
    return None


def bounded_length(inv_freq: Frequencies, searched: int = SEARCHED) -> int | None:
    """L_theta in tokens; None if B_m stays at or above zero up to the distance `searched`."""
    first = first_negative(inv_freq, searched)
    return None if first is None else first - 1


def count_negative(inv_freq: Frequencies, length: int) -> int:
    """Distances from 0 to `length` with B_m < 0."""
    return sum(int((sums < 0).sum()) for _, sums in discrimination_runs(inv_freq, length))


def frequencies_of(base: float, dim: int) -> Frequencies:
    """Inverse frequencies (dim / 2,) of a RoPE base over `dim` rotated elements of a head.

    Raises:
      SpecError: a base of 1 or less, or an odd or non-positive `dim`.
    """
    if not base > 1 or not np.isfinite(base):
        raise SpecError("RoPE base", base, "a finite base above 1", "give the base of a model")
    if dim < 2 or dim % 2:
        raise SpecError(
            "rotated elements", dim, "an even number from 2", "give the model's rotary dimension"
        )
    return np.asarray(float(base) ** (-np.arange(0, dim, 2, dtype=np.float64) / dim))


def grid(digits: int) -> list[float]:
    """Every base above 1 with so many significant digits, ascending up to 9.9... * 10 ** 16."""
    start = 10 ** (digits - 1)
    written = (f"{k}e{e - digits + 1}" for e in EXPONENTS for k in range(start, 10 * start))
    return [base for base in map(float, written) if base > 1]


def smallest_base(length: int, dim: int, digits: int = 2) -> SmallestBase:
    """The smallest base of `grid(digits)` with B_m >= 0 at every distance from 0 to `length`.

    Raises:
      SpecError: a length below 1, or no base of the grid is admissible.
    """
    if length < 1:
        raise SpecError("length", length, "a length of at least 1 token", "give a longer length")
    bases = grid(digits)
    found = next((base for base in bases if _admissible(base, dim, length)), None)
    if found is None:
        raise SpecError(
            f"length {length} with {dim} rotated elements",
            f"a negative B_m for every base up to {bases[-1]:g}",
            "a length that some base of the grid reaches",
            "ask for a shorter length or more rotated elements",
        )
    return SmallestBase(found, _every_from(bases, dim, length))


def _admissible(base: float, dim: int, length: int) -> bool:
    return first_negative(frequencies_of(base, dim), length) is None


def _every_from(bases: list[float], dim: int, length: int) -> float | None:
    safe = None
    for base in reversed(bases):
        inv_freq = frequencies_of(base, dim)
        # No pair's cosine is below that of its largest angle, or -1 past half a turn. The sum of
        # these grows with the base: where it is not negative, all larger bases are admissible.
        proven = np.cos(np.minimum(length * inv_freq, np.pi)).sum() >= 0
        if not proven and (safe is None or not _admissible(base, dim, length)):
            return safe
        safe = base
    return safe
