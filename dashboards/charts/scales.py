"""Axes of charts: convert data to pixels, and choose ticks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis between two pixel positions."""

    low: float
    high: float
    start: float
    """Pixel position of `low`."""
    end: float
    """Pixel position of `high`."""
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel position of a value, which must be positive on a logarithmic axis."""
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        share = (at - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 2)


def linear(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """Return a linear axis that contains all values and ends at ticks, and its ticks."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    step = _round_step(span / 4)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = [round(number * step, 12) for number in range(first, last + 1)]
    return Scale(ticks[0], ticks[-1], start, end), ticks


def within(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """Return a linear axis that ends at the largest value, to save space, and its ticks."""
    scale, ticks = linear(values, start, end)
    low, high = min(scale.low, min(values)), max(values)
    if low == high:  # one value, at the first tick
        return scale, ticks
    return Scale(low, high, start, end), [tick for tick in ticks if tick <= high]


def logarithmic(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """Return a logarithmic axis that extends 8 % beyond the values at each end, and its ticks."""
    low, high = min(values) / 1.08, max(values) * 1.08
    candidates = [
        digit * 10.0**power
        for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for digit in ((1, 2, 5) if high / low < 1e3 else (1,))
    ]
    ticks = [tick for tick in candidates if low <= tick <= high]
    if len(ticks) < 2:  # short range: nearly linear, so use linear ticks
        ticks = [tick for tick in linear([low, high], 0, 1)[1] if low <= tick <= high]
    return Scale(low, high, start, end, logarithmic=True), ticks


def lengths(values: Sequence[float], start: float, end: float) -> tuple[Scale, list[float]]:
    """Return a logarithmic axis of token counts, and its ticks, which are powers of two.

    If fewer than two powers of two are in the range, the ticks are the values themselves.
    """
    low, high = min(values), max(values)
    if low == high:
        low, high = low / 2, high * 2
    powers = range(math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9) + 1)
    ticks = [2.0**power for power in powers]
    if len(ticks) < 2:  # at most one power of two in range
        ticks = sorted(set(values)) if min(values) < max(values) else ticks or [float(values[0])]
    return Scale(low, high, start, end, logarithmic=True), ticks


def _round_step(step: float) -> float:
    power = 10.0 ** math.floor(math.log10(step))
    return next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= step * 0.999)
