"""Colours are distinguishable and have enough contrast on light and dark pages."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import dashboards

STEPS = [f"h{step}" for step in range(11)]
LINES = ["control", *(f"c{number}" for number in range(6))]
FAMILIES = ("interpolation", "base", "dynamic", "approximate", "other", "control")


def schemes() -> dict[str, dict[str, str]]:
    """Return the colours by name of light and of dark pages."""
    text = (Path(dashboards.__file__).parent / "page" / "figures.css").read_text(encoding="utf-8")
    light, dark = text.split("@media screen and (prefers-color-scheme: dark)", 1)
    colours = [dict(re.findall(r"--([\w-]+): (#\w+);", part)) for part in (light, dark)]
    return {"light": colours[0], "dark": {**colours[0], **colours[1]}}


def luminance(colour: str) -> float:
    """Return the relative luminance of WCAG 2."""
    digits = colour.lstrip("#")
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    parts = [int(digits[start : start + 2], 16) / 255 for start in (0, 2, 4)]
    linear = [
        part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_lightness_rises_or_falls_through_the_scale_of_heat_maps() -> None:
    for name, colours in schemes().items():
        steps = [luminance(colours[step]) for step in STEPS]
        rises = [b > a for a, b in itertools.pairwise(steps)]
        assert set(rises) == {name == "dark"}


def test_numbers_can_be_read_on_every_step() -> None:
    for name, colours in schemes().items():
        for number, step in enumerate(STEPS):
            ink = colours["strong-ink" if number >= 7 else "ink"]
            assert contrast(colours[step], ink) >= 4.5, (name, step)


def test_lines_families_and_text_contrast_with_the_page() -> None:
    for name, colours in schemes().items():
        for line in LINES:
            assert contrast(colours[line], colours["page"]) >= 3, (name, line)
        for words in ("text", "soft", *(f"f-{family}" for family in FAMILIES)):
            assert contrast(colours[words], colours["page"]) >= 4.5, (name, words)
