"""Axes of charts: convert data to pixels, and choose ticks."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

_DIGITS = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7))
_LABEL = 40.0
"""Width in pixels that the label of a token count needs: "131,072" at 11 pixels."""


@dataclass(frozen=True)
class Scale:
    """A linear or logarithmic axis between two pixel positions."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel position of a value, which must be positive on a logarithmic axis."""
        low, high, at = self.low, self.high, value
        if self.logarithmic:
            low, high, at = math.log(low), math.log(high), math.log(at)
        share = (at - low) / (high - low)
        return round(self.start + share * (self.end - self.start), 2)


WithTicks = tuple[Scale, list[float]]


def linear(values: Sequence[float], start: float, end: float) -> WithTicks:
    """Return a linear axis that contains all values and ends at ticks, and its ticks."""
    low, high = min(values), max(values)
    span = (high - low) or abs(high) or 1.0
    power = 10.0 ** math.floor(math.log10(span / 4))
    step = next(digit * power for digit in (1, 2, 2.5, 5, 10) if digit * power >= span / 4 * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    last = max(last, first + 1)
    ticks = [round(number * step, 12) for number in range(first, last + 1)]
    return Scale(ticks[0], ticks[-1], start, end), ticks


def within(values: Sequence[float], start: float, end: float) -> WithTicks:
    """Return a linear axis that ends at the largest value, to save space, and its ticks."""
    scale, ticks = linear(values, start, end)
    low, high = min(scale.low, min(values)), max(values)
    if low == high:  # one value, at the first tick
        return scale, ticks
    return Scale(low, high, start, end), [tick for tick in ticks if tick <= high]


def logarithmic(values: Sequence[float], start: float, end: float) -> WithTicks:
    """Return a logarithmic axis that extends 8 % beyond the values at each end, and its ticks.

    Three ticks are the fewest whose unequal distances show that the axis is logarithmic.
    """
    low, high = min(values) / 1.08, max(values) * 1.08
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in _DIGITS[high / low < 1e3 :]:
        candidates = [digit * 10.0**power for power in powers for digit in digits]
        ticks = [tick for tick in candidates if low <= tick <= high]
        if len(ticks) >= 3:
            break
    else:  # short range: nearly linear, so use linear ticks
        ticks = [tick for tick in linear([low, high], 0, 1)[1] if low <= tick <= high]
    return Scale(low, high, start, end, logarithmic=True), ticks


def lengths(values: Sequence[float], start: float, end: float) -> WithTicks:
    """Return a logarithmic axis of token counts; the ticks are the values, or powers of two."""
    low, high = min(values), max(values)
    if low == high:
        low, high = low / 2, high * 2
    scale = Scale(low, high, start, end, logarithmic=True)
    ticks = sorted(set(values))
    places = [scale(tick) for tick in ticks]
    if any(right - left < _LABEL for left, right in itertools.pairwise(places)):
        powers = range(math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9) + 1)
        ticks = [2.0**power for power in powers] if len(powers) > 1 else [low, high]
    return scale, ticks


def name(words: str, scale: Scale) -> str:
    return f"{words}, log scale" if scale.logarithmic else words
