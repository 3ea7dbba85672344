"""Search for HARPE's bases: heads whose attention waveforms complement each other.

A base b has the waveform f(m) = 2 sum_i cos(m b^(-2i/d)) / sqrt(d) over relative distances m. Where
the waveform of one head is low, that of another should be high. The search chooses bases one by
one. Each new base has as many main peaks as possible within three tokens of main troughs of the
chosen bases, and main troughs within three tokens of their main peaks.

The paper prints another algorithm (a mean distance between peaks and troughs, no count), which
yields at most 14 of the 32 bases of its table 2. This search yields all 32.

Source: Lian et al. 2024, arXiv:2412.07171, section 3.2 and table 2, after the code of Attention
Buckets (github.com/AlibabaResearch/DAMO-ConvAI@ef1f2e1, attention-buckets/basic.py).
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import SpecError
from lce_core.rope import Frequencies

Positions = NDArray[np.int64]

_BLOCK = 1024
"""`waveform` adds the angles of a multiple of this number and of a remainder."""
_SAME_HEIGHT = 1e-3
"""Two values of a waveform count as equally high if they differ by at most this. The search for the
next main peak or trough accepts the first local extremum that is as high or low as required."""
_FIRST_LOOK = 64
"""Number of extrema that `_next_near` compares first. It starts small, because most matches are
close to the start, and doubles after each failure."""


@dataclass(frozen=True)
class SearchSettings:
    """Parameters of the search; the defaults reproduce table 2.

    Candidate bases range from `lowest`, which the search chooses first, to `highest`, and relative
    distances from `nearest` to `farthest` tokens.
    """

    lowest: int = 1_000_000
    highest: int = 5_000_000
    stride: int = 30_000
    nearest: int = 1000
    farthest: int = 131_072
    num_extrema: int = 30
    """Number of main peaks, and of main troughs, per waveform."""
    peak_gap: int = 50
    """Two main peaks of a waveform are more than this many tokens apart."""
    trough_gap: int = 60
    """Two main troughs of a waveform are more than this many tokens apart."""
    stretch: int = 500
    """The next main peak is the highest value of the waveform in this many tokens after a peak."""
    radius: int = 3
    """A peak of one head covers a trough of another if they are at most this many tokens apart."""

    @property
    def candidates(self) -> tuple[int, ...]:
        return tuple(range(self.lowest, self.highest + 1, self.stride))

    def check_count(self, count: int) -> None:
        if not 1 <= count <= len(self.candidates):
            raise SpecError(
                "harpe search",
                f"{count} bases to choose",
                f"1 to {len(self.candidates)} bases, because there are only {len(self.candidates)}"
                f" candidates from {self.lowest} to {self.highest} in steps of {self.stride}",
                "choose a smaller stride, or list the bases",
            )


@dataclass(frozen=True, eq=False)
class Extrema:
    """Relative distances in tokens at which waveforms have main peaks and main troughs."""

    peaks: Positions
    troughs: Positions


PUBLISHED = SearchSettings()


@lru_cache(maxsize=32)
def search_bases(
    rotary_dim: int, count: int, settings: SearchSettings = PUBLISHED
) -> tuple[int, ...]:
    """Return `count` bases in the order of choice; a larger `count` only adds bases at the end."""
    settings.check_count(count)
    # The matrices are so small that threads of BLAS cost more time than they save: 10 times as much
    # on a busy machine, where they wait for each other.
    with _one_thread():
        left = {base: main_extrema(base, rotary_dim, settings) for base in settings.candidates}
    chosen, unmet = [settings.lowest], left.pop(settings.lowest)
    while len(chosen) < count:
        # Of equal ranks the smaller base wins: candidates ascend.
        best = min(left, key=lambda base: _rank(left[base], unmet, settings.radius))
        chosen.append(best)
        unmet = _still_unmet(unmet, left.pop(best))
    return tuple(chosen)


def waveform(base: float, rotary_dim: int, nearest: int, farthest: int) -> Frequencies:
    """Return f(m) for m = nearest..farthest, both included, accurate to about 1e-12."""
    inv_freq = float(base) ** -(np.arange(0, rotary_dim, 2) / rotary_dim)
    coarse = np.multiply.outer(np.arange(nearest, farthest + 1, _BLOCK), inv_freq)
    fine = np.multiply.outer(np.arange(_BLOCK), inv_freq)
    sums = np.hstack((np.cos(coarse), -np.sin(coarse))) @ np.hstack((np.cos(fine), np.sin(fine))).T
    return np.asarray(2 / rotary_dim**0.5 * sums.ravel()[: farthest - nearest + 1])


def main_extrema(base: float, rotary_dim: int, settings: SearchSettings = PUBLISHED) -> Extrema:
    """Return the main peaks and main troughs of a base's waveform.

    Peaks are searched from small to large distances: the highest one first, then the highest value
    of each next `stretch` tokens. Troughs are searched from large to small: the lowest one first,
    then the lowest value at all smaller distances. Extrema near the previous one are skipped.
    """
    values = waveform(base, rotary_dim, settings.nearest, settings.farthest)
    rises = np.sign(np.diff(values))
    maxima, minima = (np.flatnonzero(np.diff(rises) == turn) + 1 for turn in (-2, 2))
    return Extrema(
        _main_peaks(values, maxima, settings) + settings.nearest,
        _main_troughs(values, minima, settings) + settings.nearest,
    )


def _main_peaks(values: Frequencies, maxima: Positions, settings: SearchSettings) -> Positions:
    heights = values[maxima]
    found: list[int] = []
    at = _next_near(heights, 0, heights.max(initial=-np.inf))
    # The reference never considers the last maximum, because no maximum follows it.
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
        # The reference code uses the gap of peaks here, too.
        end = min(here - settings.peak_gap, minima[at + 1])
        if len(found) == settings.num_extrema or end <= 0:
            break
        at = _next_near(heights, at + 1, values[:end].min())
    return np.array(found[::-1], dtype=np.int64)


def _next_near(heights: Frequencies, start: int, target: float) -> int:
    """Return the first index >= `start` whose height is about `target`; len(heights) if none is."""
    block = _FIRST_LOOK
    while start < len(heights):
        near = np.abs(heights[start : start + block] - target) <= _SAME_HEIGHT
        if near.any():
            return start + int(near.argmax())
        start, block = start + block, 2 * block
    return len(heights)


def _still_unmet(before: Extrema, new: Extrema) -> Extrema:
    """Return the uncovered extrema of all chosen bases after adding those of a new base.

    A peak and a trough at one distance cover each other. As in the reference code, a distance that
    was removed earlier can appear again with a later base.
    """
    peaks = np.concatenate((before.peaks, new.peaks))
    troughs = np.concatenate((before.troughs, new.troughs))
    return Extrema(peaks[~np.isin(peaks, troughs)], troughs[~np.isin(troughs, peaks)])


def _rank(candidate: Extrema, unmet: Extrema, radius: int) -> tuple[int, float]:
    """Rank by uncovered opposite extrema within `radius`, then by squared distance."""
    gaps = np.concatenate(
        [
            np.subtract.outer(candidate.peaks, unmet.troughs).ravel(),
            np.subtract.outer(candidate.troughs, unmet.peaks).ravel(),
        ]
    )
    meetings = gaps[np.abs(gaps) <= radius]
    spread = float((meetings**2).mean()) if meetings.size else float("inf")
    return -meetings.size, spread


def _one_thread() -> AbstractContextManager[object]:
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:  # a bare GPU machine (docs/training.md)
        return nullcontext()
    limits: AbstractContextManager[object] = threadpool_limits(1, "blas")
    return limits
