"""Page: the status of every cell, updated during a run, and the reasons for missing results."""

from typing import Any

import altair as alt
import streamlit as st

from dashboards.app.catalog import Chosen
from dashboards.app.tables import NAMES, colour, table
from dashboards.contents import Row
from dashboards.families import Variant

REFRESH_SECONDS = 5.0
_COLOURS = {
    "done": "h6",
    "in part": "h2",
    "missing": "lane",
    "failed": "frame",
    "unavailable": "line",
}
_ROW_PIXELS = 22
_HEADS = alt.Axis(labelAngle=-90, labelLimit=170, labelOverlap=False, orient="top")


@st.fragment(run_every=REFRESH_SECONDS)
def page(chosen: Chosen) -> None:
    if hypothesis := chosen.facts["hypothesis"]:
        with st.expander("Hypothesis"):
            st.text(hypothesis)
    rows = chosen.rows("matrix")
    counts(rows)
    event = st.altair_chart(
        _chart(rows), width="stretch", key="matrix", on_select="rerun", selection_mode="field"
    )
    if found := chosen.rows("reasons"):
        st.subheader("Without a result", anchor=False)
        heads = {
            "status": "status", "cells": "cells", "reason": "why", "methods": "methods",
            "benchmarks": "benchmarks", "lengths": "lengths",
        }  # fmt: skip
        table(found, heads, "reasons")
    _field(chosen, rows, event)


def counts(rows: list[Row]) -> None:
    total = {
        name: sum(row[name] for row in rows)
        for name in ("planned", "done", "failed", "missing", "unavailable")
    }
    planned = total["planned"]
    st.progress(
        total["done"] / planned if planned else 0.0,
        f"{total['done']:,} of {planned:,} cells done · {total['missing']:,} missing"
        f" · {total['failed']:,} failed · {total['unavailable']:,} unavailable",
    )


def _chart(rows: list[Row]) -> alt.LayerChart | alt.FacetChart:
    fields = [
        {
            "variant": Variant.of(row).label,
            "column": _column(row),
            "says": "" if row["done"] == row["planned"] else _says(row),
            **{name: row[name] for name in ("state", "done", "planned", "reasons")},
            "minutes": (row["seconds"] or 0.0) / 60,
        }
        for row in rows
    ]
    columns = list(dict.fromkeys(field["column"] for field in fields))
    variants = list(dict.fromkeys(field["variant"] for field in fields))
    states = [state for state in _COLOURS if any(field["state"] == state for field in fields)]
    clicked = alt.selection_point(name="field", fields=["variant", "column"], toggle=False)
    base = alt.Chart(alt.Data(values=fields)).encode(
        x=alt.X("column:N", sort=columns, title=None, axis=_HEADS),
        y=alt.Y("variant:N", sort=variants, title=None, axis=NAMES),
    )
    marks = base.mark_rect(cornerRadius=2, stroke=colour("page"), strokeWidth=2).encode(
        color=alt.Color(
            "state:N",
            scale=alt.Scale(domain=states, range=[colour(_COLOURS[one]) for one in states]),
            legend=alt.Legend(title=None, orient="bottom", columns=1),
        ),
        tooltip=[
            alt.Tooltip("variant:N", title="method"),
            alt.Tooltip("column:N", title="benchmark"),
            alt.Tooltip("state:N"),
            alt.Tooltip("done:Q", title="done"),
            alt.Tooltip("planned:Q", title="planned"),
            alt.Tooltip("minutes:Q", format=".1f"),
            alt.Tooltip("reasons:N", title="reasons"),
        ],
        opacity=alt.condition(clicked, alt.value(1.0), alt.value(0.45)),
    )
    strong = alt.FieldOneOfPredicate(field="state", oneOf=["done", "failed"])
    words = base.mark_text(fontSize=10).encode(
        text="says:N",
        color=alt.condition(strong, alt.value(colour("strong-ink")), alt.value(colour("ink"))),
    )
    return alt.layer(marks.add_params(clicked), words).properties(
        height=_ROW_PIXELS * (len(variants) + len(states)) + 170
    )


def _column(row: Row) -> str:
    return f"{row['benchmark'].replace('_', ' ')} {row['eval_length']:,}"


def _says(row: Row) -> str:
    if row["failed"]:
        return "!"
    return "–" if row["state"] == "unavailable" else f"{row['done']}/{row['planned']}"  # noqa: RUF001


def _field(chosen: Chosen, rows: list[Row], event: Any) -> None:
    picked = event["selection"].get("field") or []
    if not picked:
        st.caption("Click a field to list its cells.")
        return
    place = picked[0]["variant"], picked[0]["column"]
    one = next((r for r in rows if (Variant.of(r).label, _column(r)) == place), None)
    if one is None:
        return
    st.subheader(", ".join(place), anchor=False)
    keys = ("method", "frozen", "benchmark", "eval_length")
    cells = chosen.rows("field", **{name: one[name] for name in keys})
    heads = {
        "task": "task", "seed": "seed", "status": "status", "reason": "why",
        "attempts": "attempts", "seconds": "seconds", "cell": "cell",
    }  # fmt: skip
    table(cells, heads, "cells")
