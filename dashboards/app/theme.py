"""Colours for the dashboard's Vega charts: those of the report, for the light or dark theme."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import altair as alt
import streamlit as st

from catalog.palette import Look

_CSS = Path(__file__).parents[1] / "page" / "figures.css"
NAMES = alt.Axis(labelLimit=190, labelOverlap=False, labelFlush=False)
"""Axis that labels every method; by default Vega omits labels that would overlap."""
PAGE = """<style>
.stMainBlockContainer {padding: 4rem 2rem} /* the fixed header is 3.75rem high */
[data-testid="stHeading"] h2 {font-size: 1.75rem}
[data-testid="stHeading"] h3 {font-size: 1.35rem}
[data-testid="stCaptionContainer"] {opacity: 1}
[data-testid="stCaptionContainer"] p {color: color-mix(in srgb, currentColor 78%, transparent)}
</style>"""
"""CSS of all pages: less padding, smaller headings, and captions with more contrast."""


def is_dark() -> bool:
    return st.context.theme.type == "dark"


def colour(name: str) -> str:
    return palettes()[is_dark()][name]


def of_look(look: Look) -> str:
    return look.dark if is_dark() else look.light


@functools.cache
def palettes() -> tuple[dict[str, str], dict[str, str]]:
    light, dark = _CSS.read_text(encoding="utf-8").split(
        "@media screen and (prefers-color-scheme: dark)"
    )
    of_light = dict(re.findall(r"--([\w-]+): (#\w+);", light))
    of_dark = dict(re.findall(r"--([\w-]+): (#\w+);", dark.split("\n}\n")[0]))
    return of_light, {**of_light, **of_dark}
