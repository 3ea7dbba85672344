"""The search for HARPE's bases: heads whose attention waveforms fill each other's gaps.

A base b gives the waveform f(m) = 2 sum_i cos(m b^(-2i/d)) / sqrt(d) over relative distances m.
Where one head's waveform is low another's should be high, so bases are chosen one by one such that
as many main peaks of the new one as possible lie within three tokens of main troughs of those
chosen already, and its troughs within three tokens of their peaks.

The paper prints another algorithm (a mean distance between peaks and troughs, no count); with it
at most 14 of the 32 bases of its table 2 come out. What is here gives all 32.
Source: Lian et al. 2024, arXiv:2412.07171, section 3.2 and table 2, after the code of
Attention Buckets (github.com/AlibabaResearch/DAMO-ConvAI@ef1f2e1, attention-buckets/basic.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import SpecError
from lce_core.rope import Frequencies

Positions = NDArray[np.int64]

_BLOCK = 1024
"""Distances whose cosines are multiplied out of two small tables."""
_SAME_HEIGHT = 1e-3
"""A local extremum is a main one if it is this close to the extremum of the stretch around it."""
_FIRST_LOOK = 64
"""Extrema compared at once at first; then twice as many each time, as most lie close ahead."""


@dataclass(frozen=True)
class SearchSettings:
    """What the search looks at; the defaults give table 2."""

    lowest: int = 1_000_000
    """First candidate base, and the base chosen first."""
    highest: int = 5_000_000
    """No candidate base is larger."""
    stride: int = 30_000
    """Step between candidate bases."""
    nearest: int = 1000
    """Smallest relative distance looked at, in tokens."""
    farthest: int = 131_072
    """Largest relative distance looked at, in tokens."""
    num_extrema: int = 30
    """Main peaks, and main troughs, of each waveform."""
    peak_gap: int = 50
    """Tokens that two main peaks are more than apart."""
    trough_gap: int = 60
    """Tokens that two main troughs are more than apart."""
    stretch: int = 500
    """Tokens ahead of a peak in which the next main peak is the highest point."""
    radius: int = 3
    """A peak and a trough at most this many tokens apart meet."""

    @property
    def candidates(self) -> tuple[int, ...]:
        """All candidate bases, ascending."""
        return tuple(range(self.lowest, self.highest + 1, self.stride))

    def check_count(self, count: int) -> None:
        """Raises SpecError unless so many bases can be chosen."""
        if not 1 <= count <= len(self.candidates):
            raise SpecError(
                "harpe search",
                f"{count} bases to choose",
                f"1 to {len(self.candidates)} bases, the candidates from {self.lowest}"
                f" to {self.highest} in steps of {self.stride}",
                "ask for fewer bases, or take a smaller stride",
            )


@dataclass(frozen=True, eq=False)
class Extrema:
    """Relative distances of main peaks and troughs; of one base, ascending."""

    peaks: Positions
    troughs: Positions


@dataclass(frozen=True, eq=False)
class _Candidate:
    base: int
    extrema: Extrema


PUBLISHED = SearchSettings()


@lru_cache(maxsize=32)
def search_bases(
    rotary_dim: int, count: int, settings: SearchSettings = PUBLISHED
) -> tuple[int, ...]:
    """Bases in the order in which they are chosen; a longer search starts with a shorter one.

    Args:
      rotary_dim: rotated elements of a head.
      count: bases wanted.
      settings: what to look at.

    Raises:
      SpecError: more bases are asked for than there are candidates.
    """
    settings.check_count(count)
    left = [
        _Candidate(base, main_extrema(base, rotary_dim, settings)) for base in settings.candidates
    ]
    first = left.pop(0)
    chosen, unmet = [first.base], first.extrema
    while len(chosen) < count:
        best = min(left, key=lambda c: _rank(c, unmet, settings.radius))
        left.remove(best)
        chosen.append(best.base)
        unmet = _still_unmet(unmet, best.extrema)
    return tuple(chosen)


def waveform(base: float, rotary_dim: int, nearest: int, farthest: int) -> Frequencies:
    """f(m) for m = nearest..farthest, both included.

    Angle addition turns it into one product of a coarse and a fine table of cosines, good to
    about 1e-12.
    """
    inv_freq = float(base) ** -(np.arange(0, rotary_dim, 2) / rotary_dim)
    coarse = np.multiply.outer(np.arange(nearest, farthest + 1, _BLOCK), inv_freq)
    fine = np.multiply.outer(np.arange(_BLOCK), inv_freq)
    sums = np.hstack((np.cos(coarse), -np.sin(coarse))) @ np.hstack((np.cos(fine), np.sin(fine))).T
    return np.asarray(2 / rotary_dim**0.5 * sums.ravel()[: farthest - nearest + 1])


def main_extrema(base: float, rotary_dim: int, settings: SearchSettings = PUBLISHED) -> Extrema:
    """Main peaks, found from the near end on, and main troughs, found from the far end on.

    The first main peak is the highest of all; each further one is the highest point of the stretch
    ahead. The first main trough is the lowest of all; each further one is the lowest point of all
    that is nearer. Those too close to the one before count as found and are left out.
    """
    values = waveform(base, rotary_dim, settings.nearest, settings.farthest)
    maxima, minima = _strict_extrema(values)
    return Extrema(
        _main_peaks(values, maxima, settings) + settings.nearest,
        _main_troughs(values, minima, settings) + settings.nearest,
    )


def _main_peaks(values: Frequencies, maxima: Positions, settings: SearchSettings) -> Positions:
    heights = values[maxima]
    found: list[int] = []
    at = _next_near(heights, 0, heights.max(initial=-np.inf))
    # The last maximum has none after it to go on to and is never looked at.
    while at < len(maxima) - 1:
        here = int(maxima[at])
        if not found or here - found[-1] > settings.peak_gap:
            found.append(here)
        if len(found) == settings.num_extrema:
            break
        start = min(here + settings.peak_gap, maxima[at + 1])
        at = _next_near(heights, at + 1, values[start : start + settings.stretch].max())
    return np.array(found, dtype=np.int64)


def _main_troughs(values: Frequencies, minima: Positions, settings: SearchSettings) -> Positions:
    minima = minima[::-1]
    heights = values[minima]
    found: list[int] = []
    at = _next_near(heights, 0, heights.min(initial=np.inf))
    while at < len(minima) - 1:
        here = int(minima[at])
        if not found or found[-1] - here > settings.trough_gap:
            found.append(here)
        # The reference steps by the gap of peaks here too.
        end = min(here - settings.peak_gap, minima[at + 1])
        if len(found) == settings.num_extrema or end <= 0:
            break
        at = _next_near(heights, at + 1, values[:end].min())
    return np.array(found[::-1], dtype=np.int64)


def _next_near(heights: Frequencies, start: int, target: float) -> int:
    """First index from `start` on whose height is that of the target; the length if none is."""
    block = _FIRST_LOOK
    while start < len(heights):
        near = np.abs(heights[start : start + block] - target) <= _SAME_HEIGHT
        if near.any():
            return start + int(near.argmax())
        start, block = start + block, 2 * block
    return len(heights)


def _strict_extrema(values: Frequencies) -> tuple[Positions, Positions]:
    """Positions of strict local maxima and of strict local minima, both ascending."""
    rising, falling = values[1:] > values[:-1], values[1:] < values[:-1]
    maxima, minima = rising[:-1] & falling[1:], falling[:-1] & rising[1:]
    return np.flatnonzero(maxima) + 1, np.flatnonzero(minima) + 1


def _still_unmet(before: Extrema, new: Extrema) -> Extrema:
    """What is left of peaks and troughs once another base is chosen: positions that are both go.

    Only what was left before meets the new ones, as in the reference. A position that went earlier
    is forgotten, so a later base may bring it back.
    """
    peaks = np.concatenate((before.peaks, new.peaks))
    troughs = np.concatenate((before.troughs, new.troughs))
    return Extrema(peaks[~np.isin(peaks, troughs)], troughs[~np.isin(troughs, peaks)])


def _rank(candidate: _Candidate, unmet: Extrema, radius: int) -> tuple[int, float, int]:
    """Smallest for the most meetings, then the closest ones, then the smallest base."""
    gaps = np.concatenate(
        [
            np.subtract.outer(candidate.extrema.peaks, unmet.troughs).ravel(),
            np.subtract.outer(candidate.extrema.troughs, unmet.peaks).ravel(),
        ]
    )
    meetings = gaps[np.abs(gaps) <= radius]
    spread = float((meetings**2).mean()) if meetings.size else float("inf")
    return -meetings.size, spread, candidate.base
