"""Page: what the study came to, progress while it runs, and means with intervals."""

from urllib.parse import urlencode

import streamlit as st

from dashboards.app.catalog import Chosen
from dashboards.app.tables import p_text, table
from dashboards.app.views import answers, matrix
from dashboards.contents import Row
from dashboards.families import Variant

_SCORES = {
    "benchmark": "benchmark", "task": "task", "eval_length": "length", "variant": "method",
    "value": "score", "ci_low": "low", "ci_high": "high", "metric": "metric",
    "num_seeds": "seeds", "num_documents": "documents or prompts per seed", "answers": "answers",
}  # fmt: skip
_EXPECTED = {
    "entry": "entry", "text": "expectation", "claim": "claim", "variant": "method",
    "other_variant": "compared with", "benchmark": "benchmark", "eval_length": "length",
    "outcome": "outcome", "difference": "difference", "ci_low": "low", "ci_high": "high",
    "p": "p or q", "num_needed": "seeds or samples that would decide",
    "blocked_by": "blocked by entry", "withdrawn_after": "withdrawn after results",
}  # fmt: skip


@st.fragment(run_every=matrix.REFRESH_SECONDS)
def page(chosen: Chosen) -> None:
    if hypothesis := chosen.facts["hypothesis"]:
        st.text(hypothesis)
    cells = chosen.rows("matrix")
    if any(row["missing"] for row in cells):
        matrix.counts(cells)
    _summary(chosen)
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


def _summary(chosen: Chosen) -> None:
    (one,) = (
        one for one in chosen.catalog.summaries(chosen.study) if one.base_model == chosen.base_model
    )
    parts = {
        "Expected and found": [sentence for sentence, _ in one.outcomes()],
        "Which method": one.recommended(),
        "What to distrust": [*one.distrust(), one.total_cost()],
    }
    for heading, sentences in parts.items():
        st.subheader(heading, anchor=False)
        st.text("\n".join(sentences))
    if rows := chosen.rows("expectations"):
        st.subheader("Expectations", anchor=False)
        table([{**row, "p": p_text(row)} for row in rows], _EXPECTED, "expectations")


def _link(chosen: Chosen, row: Row) -> str | None:
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
