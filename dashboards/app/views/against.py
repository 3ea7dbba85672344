"""Page: compare a method with one other or with all others by the catalog's paired tests."""

import altair as alt
import streamlit as st

from dashboards.app.catalog import Chosen
from dashboards.app.tables import NAMES, colour, p_text, picker, table, text_of
from dashboards.contents import Row, grouped
from dashboards.families import Variant

_ALL, _ALL_OF = "all others", "all"
_ROW_PIXELS, WIDTH = 20, 446
_COLOURS = {
    "better": "c0",
    "worse": "c1",
    "undecided": "soft",
    "the same": "soft",
    "too few": "line",
}


def page(chosen: Chosen) -> None:
    row = st.container(horizontal=True)
    pick = picker(row, 220)
    variants = {one.label: one for one in chosen.variants()}
    tuned = next((n for n, one in enumerate(variants.values()) if not one.is_control), 0)
    one = variants[pick("Method", list(variants), tuned, key="method")]
    found = chosen.rows("pairs", method=one.method, frozen=one.frozen)
    others = [_ALL, *(other for other in variants if any(_other(r) == other for r in found))]
    against = pick("Against", others, key="against")
    found = [r for r in found if against in (_ALL, _other(r))]
    benchmarks = [_ALL_OF, *dict.fromkeys(r["benchmark"] for r in found)]
    benchmark = pick("Benchmark", benchmarks, key="benchmark", width=170)
    lengths = sorted({r["eval_length"] for r in found}, reverse=True)
    wanted = row.multiselect(
        "Lengths",
        lengths,
        lengths[:1] if against == _ALL else [],
        key=f"lengths {against == _ALL}",
        width=190,
        format_func=text_of,
    )
    found = [r for r in found if benchmark in (_ALL_OF, r["benchmark"])]
    found = [r for r in found if not wanted or r["eval_length"] in wanted]
    if not found:
        st.info("Nothing to compare: there are no finished results on the same prompts.")
        return
    st.caption(
        "Difference: the method's score minus the other's, on the prompts that both answered, with"
        " its 95 % interval. p is corrected for the comparisons that the study file predicts; all"
        " others are exploratory and have q, which limits the share of false findings among them."
    )
    place = st.container(horizontal=True)
    for name, mine in grouped(found, "benchmark").items():
        panel = place.container(width=WIDTH)
        better = "higher" if mine[0]["higher_is_better"] else "lower"
        panel.text(f"{name.replace('_', ' ')}: {better} is better")
        panel.altair_chart(_chart(mine), key=f"pairs {name}")
    heads = {
        "benchmark": "benchmark", "task": "task", "eval_length": "length", "other": "against",
        "value": "value", "other_value": "other value", "difference": "difference",
        "ci_low": "low", "ci_high": "high", "p": "p or q", "verdict": "verdict",
        "smallest_detectable": "smallest detectable", "num_clusters": "independent samples",
        "num_seeds": "seeds", "generalises_to": "generalises to",
    }  # fmt: skip
    table([{**r, "other": _other(r), "p": p_text(r)} for r in found], heads, "pairs")


def _other(row: Row) -> str:
    return Variant.pair(row)[1].label


def _chart(rows: list[Row]) -> alt.LayerChart | alt.FacetChart:
    rows = sorted(rows, key=lambda row: (row["eval_length"], row["task"] or "", row["difference"]))
    parts = [(_other(row), row["task"] or "mean", f"{row['eval_length']:,}") for row in rows]
    # Label lines only by what differs; the pickers show the common values.
    differ = [number for number in range(3) if len({part[number] for part in parts}) > 1] or [0]
    shown = ("difference", "ci_low", "ci_high", "verdict", "generalises_to")
    lines = [
        {
            "where": ", ".join(part[number] for number in differ),
            "p": p_text(row),
            **{key: row[key] for key in shown},
        }
        for part, row in zip(parts, rows, strict=True)
    ]
    verdicts = [name for name in _COLOURS if any(line["verdict"] == name for line in lines)]
    base = alt.Chart(alt.Data(values=lines)).encode(
        y=alt.Y("where:N", sort=[line["where"] for line in lines], title=None, axis=NAMES),
        color=alt.Color(
            "verdict:N",
            scale=alt.Scale(domain=verdicts, range=[colour(_COLOURS[one]) for one in verdicts]),
            legend=alt.Legend(title=None, orient="bottom", columns=1),
        ),
        tooltip=[
            "where:N",
            alt.Tooltip("difference:Q", format=".4~g"),
            alt.Tooltip("ci_low:Q", format=".4~g"),
            alt.Tooltip("ci_high:Q", format=".4~g"),
            alt.Tooltip("p:N", title="p or q"),
            "verdict:N",
            "generalises_to:N",
        ],
    )  # fmt: skip
    title = f"difference in {rows[0]['unit']}"
    whiskers = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("ci_low:Q", title=title), x2="ci_high:Q"
    )
    dots = base.mark_point(filled=True, size=50, opacity=1).encode(x="difference:Q")
    zero = (
        alt.Chart(alt.Data(values=[{"zero": 0}]))
        .mark_rule(strokeDash=[3, 3], color=colour("soft"))
        .encode(x="zero:Q")
    )
    return alt.layer(zero, whiskers, dots).properties(
        height=_ROW_PIXELS * (len(lines) + len(verdicts)) + 100
    )
