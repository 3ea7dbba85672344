"""Prices and speeds as text: tokens, hours of a device, and what is known of the device."""

from __future__ import annotations

from flows.plans.pricing import Price, Prices
from lce_core.study.pricing.device_types import DEVICE_TYPES
from lce_core.study.pricing.speed import from_data_sheet
from lce_core.study.pricing.time_left import spoken

GPU_HOURS_OF = "a100"
"""The GPU whose hours are given where the price is that of a CPU."""


def gpu_seconds(price: Price, prices: Prices) -> float:
    """Of the GPU that is priced, else of an A100; training and evaluation at one rate."""
    if prices.speed.device in DEVICE_TYPES:
        return price.seconds
    return from_data_sheet(DEVICE_TYPES[GPU_HOURS_OF]).evaluation.seconds(price.cost)


def time_of(price: Price, prices: Prices) -> str:
    """Time of a price, with the GPU-hours of an A100 where it is a CPU's."""
    about, error = "~" * price.estimated, error_of(price)
    if prices.speed.device in DEVICE_TYPES:
        return f"{about}{hours_of(price.seconds, prices)}{error}"
    a100 = gpu_seconds(price, prices) / 3600
    return f"{about}{spoken(price.seconds)}{error} ({about}{three_digits(a100)} A100-hours)"


def error_of(price: Price) -> str:
    """How far a time may be off, nineteen times of twenty; empty where too little was measured."""
    return "" if price.error is None else f" ±{max(1, round(100 * price.error))} %"


def hours_of(seconds: float, prices: Prices) -> str:
    """Seconds of the priced device, of a GPU in its hours."""
    if prices.speed.device in DEVICE_TYPES:
        return f"{three_digits(seconds / 3600)} {prices.speed.device.upper()}-hours"
    return spoken(seconds)


def device_of(prices: Prices, slots: int) -> str:
    """What so many slots are, and where their speed is known from."""
    speed = prices.speed
    if speed.device in DEVICE_TYPES:
        known = "by the data sheet"
        if prices.is_corrected:
            known += ", corrected by steps that finished on one"
        return f"{slots} {speed.device.upper()}{'s'[: slots > 1]}, {known}"
    told = {
        "measured": "as measured in steps that finished here",
        "guessed": "guessed from a timed matrix product",
    }[speed.origin]
    return f"{slots} CPU worker{'s'[: slots > 1]}, {told}"


def three_digits(number: float) -> str:
    """With three digits, and all of those before the point."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:.3g}"


def tokens_and_time(price: Price, prices: Prices) -> tuple[str, str]:
    """Tokens and time of a row, of GPUs in hours."""
    about, on_gpu = "~" * price.estimated, prices.speed.device in DEVICE_TYPES
    time = f"{three_digits(price.seconds / 3600)} h" if on_gpu else spoken(price.seconds)
    return f"{about}{short_number(price.cost.tokens)}", f"{about}{time}"


def short_number(tokens: int) -> str:
    """With one digit behind the point: "3.2M"."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if tokens >= size:
            return f"{tokens / size:.1f}{unit}"
    return str(tokens)
