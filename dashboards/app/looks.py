"""Colours of the report's pictures, for charts that Vega draws; light or dark, as the page is."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import altair as alt
import streamlit as st

_CSS = Path(__file__).parents[1] / "page" / "figures.css"
NUM_COLOURS = 6
STEPS = 11
NAMES = alt.Axis(labelLimit=190, labelOverlap=False, labelFlush=False)
"""An axis that names every method."""
PAGE = """<style>
.stMainBlockContainer {padding: 3rem 2rem 4rem}
[data-testid="stCaptionContainer"] {opacity: 1}
[data-testid="stCaptionContainer"] p {color: color-mix(in srgb, currentColor 78%, transparent)}
</style>"""
"""Less of nothing at the edges; captions that stand out enough to be read."""


def is_dark() -> bool:
    """Whether the page is dark."""
    return st.context.theme.type == "dark"


def colour(name: str) -> str:
    """A colour of `figures.css`: page, text, soft, line, grid, control, frame, c0, h0, ..."""
    return palettes()[is_dark()][name]


def series(number: int) -> str:
    """The colour of the nth line of a chart."""
    return colour(f"c{number % NUM_COLOURS}")


def ramp() -> list[str]:
    """Eleven steps from the worst to the best."""
    return [colour(f"h{step}") for step in range(STEPS)]


@functools.cache
def palettes() -> tuple[dict[str, str], dict[str, str]]:
    """Colours by name: for light pages, and for dark ones."""
    light, dark = _CSS.read_text(encoding="utf-8").split(
        "@media screen and (prefers-color-scheme: dark)"
    )
    of_light = dict(re.findall(r"--([\w-]+): (#\w+);", light))
    of_dark = dict(re.findall(r"--([\w-]+): (#\w+);", dark.split("\n}\n")[0]))
    return of_light, {**of_light, **of_dark}
