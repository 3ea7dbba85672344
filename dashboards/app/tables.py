"""Tables with selected columns, and the report's colours for charts in either theme."""

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import altair as alt
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from catalog.formatting import is_numeric
from catalog.palette import Look
from dashboards.contents import Row
from lce_core import formats

_CSS = Path(__file__).parents[1] / "page" / "figures.css"
NAMES = alt.Axis(labelLimit=190, labelOverlap=False, labelFlush=False)
"""Axis with every method's name; by default Vega omits labels that would overlap."""
PAGE = """<style>
.stMainBlockContainer {padding: 4rem 2rem} /* the fixed header is 3.75rem high */
[data-testid="stHeading"] h2 {font-size: 1.75rem}
[data-testid="stHeading"] h3 {font-size: 1.35rem}
[data-testid="stCaptionContainer"] {opacity: 1}
[data-testid="stCaptionContainer"] p {color: color-mix(in srgb, currentColor 78%, transparent)}
</style>"""
"""CSS of all pages: less padding, smaller headings, and captions with more contrast."""
ROW_PIXELS, HEAD_PIXELS, MOST_PIXELS = 35, 38, 420


def table(
    rows: Sequence[Row],
    columns: Mapping[str, str],
    key: str,
    on_select: Literal["rerun", "ignore"] = "ignore",
) -> int | None:
    """Show rows as a table, always literally, and return the index of the selected row.

    The column `answers` holds addresses. With on_select="rerun" a selection reruns the page.
    """
    shown = [{head: row[column] for column, head in columns.items()} for row in rows]
    config: dict[str, Any] = {}
    for head in columns.values():
        values = [row[head] for row in shown]
        if is_numeric(values):
            form = "%.4g" if any(isinstance(value, float) for value in values) else "%,d"
            config[head] = st.column_config.NumberColumn(format=form)
    if "answers" in columns:
        config[columns["answers"]] = st.column_config.LinkColumn(display_text="answers")
    state = st.dataframe(
        shown,
        hide_index=True,
        column_config=config,
        key=key,
        height=min(MOST_PIXELS, HEAD_PIXELS + ROW_PIXELS * max(1, len(rows))),
        on_select=on_select,
        selection_mode="single-row",
        placeholder="-",
    )
    if on_select == "ignore":
        return None
    # With on_select="rerun", st.dataframe returns a state; its type does not say so.
    picked: list[int] = cast(Any, state)["selection"]["rows"]
    return picked[0] if picked and picked[0] < len(rows) else None


def picker(place: DeltaGenerator, width: int) -> Any:
    """Return a function that draws a picker here, whose value the page's address keeps."""
    return functools.partial(place.selectbox, bind="query-params", width=width)


def p_text(row: Row) -> str:
    """Return p or q as text, because as a number Streamlit would cut 0.0000001781."""
    if row["p_adjusted"] is None:
        return ""
    return formats.p_value(row["p_adjusted"], row["family"])


def text_of(value: object) -> str:
    if isinstance(value, float):
        return formats.score(value)
    return f"{value:,}" if isinstance(value, int) else str(value)


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
