"""Page: from a benchmark's mean scores down to a single answer, its reference and its prompt."""

from collections.abc import Callable
from typing import Any

import altair as alt
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dashboards.app.catalog import Chosen
from dashboards.app.tables import NAMES, colour, picker, table, text_of
from dashboards.app.views import prompt
from dashboards.charts.heat_map import STEPS
from dashboards.contents import Row, grouped, select
from dashboards.families import Variant

_ROW_PIXELS = 24
WIDTH = 446
_ALL = "all"
_MOST_DEPTHS = 20
"""Number of different depths above which rows are ranges of depths: some benchmarks draw a new
depth for each prompt."""
_RANGE = 10


def page(chosen: Chosen) -> None:
    answered = chosen.rows("answered")
    if not answered:
        st.info("No prompt of this study has been answered yet.")
        return
    row = st.container(horizontal=True)
    pick = picker(row, 150)
    tasks = {asked_name(one): (one["benchmark"], one["task"]) for one in answered}
    kinds = [own[0]["kind"] for own in grouped(answered, asked_name).values()]
    first = kinds.index("retrieval") if "retrieval" in kinds else 0
    benchmark, task = tasks[pick("Benchmark", list(tasks), first, key="asked", width=250)]
    mine = select(answered, benchmark=benchmark, task=task)
    found = chosen.rows("found", benchmark=benchmark, task=task)
    variants = {one.label: one for one in chosen.variants()}
    label = pick("Method", list(variants), key="method", width=250)
    lengths = sorted({one["eval_length"] for one in mine}, reverse=True)
    length = pick("Length", lengths, key="length", format_func=text_of)
    has_depth = any(one["has_depth"] for one in mine)
    depths = sorted({one["depth"] for one in found}) if has_depth else []
    name_of = _range if len(depths) > _MOST_DEPTHS else "{:.4g}".format
    names = list(dict.fromkeys(map(name_of, depths)))
    depth = pick("Depth in %", [_ALL, *names], key="depth")
    if found:
        st.caption(
            "Mean scores over all seeds; empty if a seed is not done. Click a field to select it."
        )
        maps = st.container(horizontal=True)
        fields = _means(found, "method", lambda one: Variant.of(one).label)
        known = {field["method"] for field in fields}
        _grid(maps, "Methods", fields, "method", [one for one in variants if one in known])
        if depths:
            mine = [one for one in found if Variant.of(one) == variants[label]]
            fields = _means(mine, "depth", lambda one: name_of(one["depth"]))
            if fields:
                _grid(maps, f"{label}, by depth in %", fields, "depth", names)
            else:
                maps.caption(f"{label} has no length at which all seeds are done.")
    place = {"benchmark": benchmark, "task": task, "eval_length": length}
    _answers(chosen, variants[label], place, depth, name_of)


def asked_name(row: Row) -> str:
    return ": ".join(dict.fromkeys((row["benchmark"], row["task"]))).replace("_", " ")


def _means(found: list[Row], column: str, name: Callable[[Row], str]) -> list[dict[str, Any]]:
    parts = grouped(found, lambda row: (name(row), row["eval_length"]))
    return [
        {
            column: label,
            "length": length,
            "value": sum(row["value"] * row["num_samples"] for row in rows) / samples,
            "samples": samples,
        }
        for (label, length), rows in parts.items()
        for samples in [sum(row["num_samples"] for row in rows)]
    ]


def _grid(
    place: DeltaGenerator, title: str, fields: list[dict[str, Any]], y: str, order: list[str]
) -> None:
    """Draw a heat map of mean scores by length (across) and by the column `y` (down).

    A click on a field selects its length and its value of `y` in the pickers with these keys.
    """
    key = f"by_{y}"
    clicked = alt.selection_point(name="field", fields=["length", y], toggle=False)
    columns = sorted({field["length"] for field in fields})
    base = alt.Chart(alt.Data(values=fields)).encode(
        x=alt.X(
            "length:O",
            sort=columns,
            title=None,
            axis=alt.Axis(orient="top", labelAngle=0, format=",d"),
        ),
        y=alt.Y(f"{y}:N", sort=order, title=None, axis=NAMES),
        tooltip=[f"{y}:N", "length:Q", alt.Tooltip("value:Q", format=".1%"), "samples:Q"],
    )
    steps = [colour(f"h{step}") for step in range(STEPS + 1)]
    scale = alt.Scale(domain=[0, 1], range=steps, interpolate="rgb")
    marks = base.mark_rect(cornerRadius=2, stroke=colour("page"), strokeWidth=2).encode(
        color=alt.Color("value:Q", scale=scale, legend=None)
    )
    words = base.mark_text(fontSize=11).encode(
        text=alt.Text("value:Q", format=".0%"),
        color=alt.condition(
            alt.datum.value > 0.65, alt.value(colour("strong-ink")), alt.value(colour("ink"))
        ),
    )
    chart = alt.layer(marks.add_params(clicked), words)

    def go() -> None:
        picked = (st.session_state[key]["selection"].get("field") or [{}])[0]
        for column in {"length", y} & picked.keys():
            st.session_state[column] = picked[column]

    panel = place.container(width=WIDTH)
    panel.text(title)
    panel.altair_chart(
        chart.properties(height=_ROW_PIXELS * len(order) + 40),
        key=key,
        on_select=go,
        selection_mode="field",
    )


def _answers(
    chosen: Chosen, one: Variant, place: Row, depth: str, name_of: Callable[[float], str]
) -> None:
    """Show the answers at a depth, or `_ALL`, that `name_of` names."""
    found = [
        row
        for row in chosen.rows("answers", method=one.method, frozen=one.frozen, **place)
        if depth == _ALL or (row["depth"] is not None and name_of(row["depth"]) == depth)
    ]
    if not found:
        st.info("No answers here: these cells are not done.")
        return
    st.subheader(f"Answers of {one.label} at {place['eval_length']:,} tokens", anchor=False)
    heads = {
        "seed": "seed", "sample": "sample", "depth": "depth in %", "score": "score",
        "prediction": "answer", "reference": "reference", "num_prompt_tokens": "prompt tokens",
    }  # fmt: skip
    key = f"answers {one.label} {' '.join(map(str, place.values()))} {depth}"
    picked = table(found, heads, key, "rerun")
    if picked is None:
        st.caption("Select a row for the whole answer and its prompt.")
        return
    _answer(chosen, found[picked])


def _range(depth: float) -> str:
    first = min(int(depth // _RANGE) * _RANGE, 100 - _RANGE)
    return f"{first} to {first + _RANGE}"


def _answer(chosen: Chosen, row: Row) -> None:
    left, right = st.columns(2)
    left.caption(f"Answer, score {text_of(row['score'])}")
    left.code(row["prediction"] or "", language=None, wrap_lines=True)
    right.caption("Reference")
    right.code(row["reference"] or "", language=None, wrap_lines=True)
    st.text(
        f"cell {row['cell']}, seed {row['seed']}, sample {row['sample']},"
        f" {row['num_prompt_tokens']:,} prompt tokens"
        + (f", document {row['cluster']}" if row["cluster"] else "")
    )
    st.subheader("Prompt", anchor=False)
    prompt.show(chosen.catalog.path.parent, row["cell"], row["sample"])
