"""Page: progress while a study runs, the best methods at each length, and means with intervals."""

from __future__ import annotations

from urllib.parse import urlencode

import streamlit as st

from dashboards.app.chosen import Chosen
from dashboards.app.tables import table
from dashboards.app.views import answers, matrix
from dashboards.claims import Claim, firsts
from dashboards.contents import Row
from dashboards.families import Variant

_SCORES = {
    "benchmark": "benchmark", "task": "task", "eval_length": "length", "variant": "method",
    "value": "score", "ci_low": "low", "ci_high": "high", "metric": "metric",
    "num_seeds": "seeds", "num_documents": "documents or prompts per seed", "answers": "answers",
}  # fmt: skip
_BEST = {
    "length": "length", "benchmark": "benchmark", "best": "best", "value": "score",
    "next": "next method", "lead": "the best leads it by", "low": "low", "high": "high",
    "p_adjusted": "p_Holm", "smallest_detectable": "smallest detectable",
}  # fmt: skip


@st.fragment(run_every=matrix.REFRESH_SECONDS)
def page(chosen: Chosen) -> None:
    """Show progress if cells are missing, then the findings and the means of all tasks."""
    if hypothesis := chosen.facts["hypothesis"]:
        st.text(hypothesis)
    cells = chosen.rows("matrix")
    if any(row["missing"] for row in cells):
        matrix.counts(cells)
    _best(chosen)
    rows = chosen.rows("means")
    if not rows:
        st.info("No task is done for all seeds yet. The page refreshes itself.")
        return
    st.subheader("Scores", anchor=False)
    st.caption("Means over seeds with 95 % intervals for other seeds and prompts.")
    found = [
        {**row, "variant": Variant.of(row).label, "answers": _link(chosen, row)} for row in rows
    ]
    table(found, _SCORES, "means")


def _best(chosen: Chosen) -> None:
    found = firsts(
        chosen.catalog.claims(chosen.study), chosen.base_model, chosen.facts["trained_context"]
    )
    rows = [
        # The gap is positive, as in the report, whether higher or lower is better.
        {
            "length": one.eval_length,
            "benchmark": one.benchmark,
            "best": ", ".join([Variant(one.method or "", bool(one.frozen)).label, *one.tied]),
            "value": one.value,
            "next": one.other_method and Variant(one.other_method, bool(one.other_frozen)).label,
            "lead": None if one.difference is None else abs(one.difference),
            **dict(zip(("low", "high"), _gap(one), strict=True)),
            "p_adjusted": one.p_adjusted if one.other_method else None,
            "smallest_detectable": one.smallest_detectable,
        }
        for claims in found.values()
        for one in claims
    ]
    if rows:
        st.subheader("Best at each length", anchor=False)
        st.caption(
            "The next method is the best one that is significantly worse. Differences have"
            " simultaneous 95 % intervals."
        )
        table(rows, _BEST, "best")


def _gap(one: Claim) -> tuple[float | None, float | None]:
    """Return the interval of the gap between the best and the next method, if known."""
    if one.low is None or one.high is None:
        return None, None
    low, high = sorted((abs(one.low), abs(one.high)))
    return low, high


def _link(chosen: Chosen, row: Row) -> str | None:
    """Return the address of the page with the answers behind a mean; None if it has none."""
    if not row["has_answers"]:
        return None
    return "answers?" + urlencode(
        {
            "study": chosen.study,
            "base_model": chosen.base_model,
            "asked": answers.asked_name(row),
            "method": Variant.of(row).label,
            "length": f"{row['eval_length']:,}",
        }
    )
