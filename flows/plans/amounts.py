"""Format prices and speeds as text: tokens, device hours, and the source of a device's speed."""

from __future__ import annotations

from flows.plans.pricing import Price, Prices
from lce_core import formats
from lce_core.study.pricing.device_types import DEVICE_TYPES
from lce_core.study.pricing.speed import from_data_sheet

GPU_HOURS_OF = "a100"
"""GPU in whose hours a CPU's price is given as well."""


def gpu_seconds(price: Price, prices: Prices) -> float:
    """Return the seconds on the priced GPU; for a price on a CPU, the seconds on an A100.

    An A100 is priced by its data sheet, at the evaluation speed for training and evaluation alike.
    """
    if prices.speed.device in DEVICE_TYPES:
        return price.seconds
    return from_data_sheet(DEVICE_TYPES[GPU_HOURS_OF]).evaluation.seconds(price.cost)


def time_of(price: Price, prices: Prices) -> str:
    """Format the time of a price; a CPU's time is followed by the equivalent A100-hours."""
    about, error = "~" * price.estimated, error_of(price)
    if prices.speed.device in DEVICE_TYPES:
        return f"{about}{hours_of(price.seconds, prices)}{error}"
    a100 = formats.three_digits(gpu_seconds(price, prices) / 3600)
    return f"{about}{formats.duration(price.seconds)}{error} ({about}{a100} A100-hours)"


def error_of(price: Price) -> str:
    """Format the relative 95 % error of a time in percent; empty if too little was measured."""
    return "" if price.error is None else f" ±{max(1, round(100 * price.error))} %"


def hours_of(seconds: float, prices: Prices) -> str:
    """Format seconds on the priced device: hours of this GPU, or a duration on a CPU."""
    if prices.speed.device in DEVICE_TYPES:
        return f"{formats.three_digits(seconds / 3600)} {prices.speed.device.upper()}-hours"
    return formats.duration(seconds)


def device_of(prices: Prices, slots: int) -> str:
    """Describe `slots` devices and the source of their speed."""
    speed = prices.speed
    if speed.device in DEVICE_TYPES:
        known = "by the data sheet"
        if prices.is_calibrated:
            known += ", corrected by steps that finished on one"
        return f"{slots} {speed.device.upper()}{'s'[: slots > 1]}, {known}"
    told = {
        "measured": "as measured in steps that finished here",
        "guessed": "guessed from a timed matrix product",
    }[speed.origin]
    return f"{slots} CPU worker{'s'[: slots > 1]}, {told}"


def tokens_and_time(price: Price, prices: Prices) -> tuple[str, str]:
    """Return the texts for a price's tokens and time in a table; the time on a GPU is in hours.

    "~" marks a price that is estimated.
    """
    about, on_gpu = "~" * price.estimated, prices.speed.device in DEVICE_TYPES
    time = (
        f"{formats.three_digits(price.seconds / 3600)} h"
        if on_gpu
        else formats.duration(price.seconds)
    )
    return f"{about}{formats.count(price.cost.tokens)}", f"{about}{time}"
