"""Format predicted costs for users: tokens, device hours, and the source of a device's speed."""

from __future__ import annotations

from flows.plans.pricing import Price, Prices
from lce_core import formats
from lce_core.study.pricing.speed import DEVICE_TYPES

GPU_HOURS_OF = "a100"
"""GPU that stands for "a GPU" on a machine without one: in GPU-hours and budgets in gpuh."""


def gpu_seconds(price: Price, prices: Prices) -> float:
    """Return the seconds on the GPU of `prices`, or on an A100 (by its data sheet) for a CPU."""
    if prices.speed.device in DEVICE_TYPES:
        return price.seconds
    return DEVICE_TYPES[GPU_HOURS_OF].evaluation.seconds(price.cost)


def time_of(price: Price, prices: Prices) -> str:
    """Format a predicted time, such as "3.2 H100-hours"; add A100-hours in brackets for a CPU."""
    about, error = "~" * price.estimated, error_of(price)
    if prices.speed.device in DEVICE_TYPES:
        return f"{about}{hours_of(price.seconds, prices)}{error}"
    a100 = formats.three_digits(gpu_seconds(price, prices) / 3600)
    return f"{about}{formats.duration(price.seconds)}{error} ({about}{a100} A100-hours)"


def error_of(price: Price) -> str:
    """Format the half width of the 95 % interval as " ±12 %"."""
    return "" if price.error is None else f" ±{max(1, round(100 * price.error))} %"


def hours_of(seconds: float, prices: Prices) -> str:
    """Format seconds as "3.2 H100-hours" or, on a CPU, as a duration."""
    if prices.speed.device in DEVICE_TYPES:
        return f"{formats.three_digits(seconds / 3600)} {prices.speed.device.upper()}-hours"
    return formats.duration(seconds)


def device_of(prices: Prices, slots: int) -> str:
    """Describe device and its speed's source: "8 H100s, speed from the data sheet"."""
    speed = prices.speed
    if speed.device in DEVICE_TYPES:
        source = "speed from the data sheet"
        if prices.is_calibrated:
            source += ", corrected by finished steps"
        return f"{slots} {speed.device.upper()}{'s'[: slots > 1]}, {source}"
    source = {
        "measured": "speed measured in finished steps",
        "guessed": "speed estimated from a timed matrix product",
    }[speed.origin]
    return f"{slots} CPU worker{'s'[: slots > 1]}, {source}"


def tokens_and_time(price: Price, prices: Prices) -> tuple[str, str]:
    """Return tokens and predicted time as texts; "~" marks estimates without the input data."""
    about, on_gpu = "~" * price.estimated, prices.speed.device in DEVICE_TYPES
    time = (
        f"{formats.three_digits(price.seconds / 3600)} h"
        if on_gpu
        else formats.duration(price.seconds)
    )
    return f"{about}{formats.count(price.cost.tokens)}", f"{about}{time}"
