"""Page: numbers printed in papers, beside the study's own values, and each printed table."""

import streamlit as st

from dashboards.app.catalog import Chosen
from dashboards.app.tables import picker, table
from dashboards.contents import grouped
from dashboards.families import Variant

_BESIDE = {
    "paper": "paper", "place": "place", "variant": "method", "benchmark": "benchmark",
    "task": "task", "eval_length": "length", "value": "ours", "paper_value": "printed",
    "difference": "difference", "rank": "our rank", "paper_rank": "rank in the paper",
}  # fmt: skip
_PRINTED = {
    "paper_model": "model", "paper_method": "method", "paper_benchmark": "benchmark",
    "task": "task", "eval_length": "length", "printed": "printed", "unit": "unit",
    "errata": "errata", "note": "note",
}  # fmt: skip
_ERRATA = {
    "id": "id", "paper": "paper", "kind": "kind", "place": "place", "says": "printed",
    "against": "contradicted by", "taken": "used here",
}  # fmt: skip


def page(chosen: Chosen) -> None:
    beside = chosen.rows("papers")
    if beside:
        st.caption("Accuracies range from 0 to 1. Differences are ours minus the paper's.")
        rows = [{**row, "variant": Variant.of(row).label} for row in beside]
        table(rows, _BESIDE, "beside")
        if agreement := chosen.rows("agreement"):
            st.subheader("Rank agreement", anchor=False)
            heads = {name: name.replace("_", " ") for name in agreement[0] if name != "study"}
            table(agreement, heads, "agreement")
    else:
        st.info("No paper reports a score for a finished cell of this study.")
    st.subheader("As printed", anchor=False)
    rows = chosen.catalog.rows("printed")
    pick = picker(st.container(horizontal=True), 200)
    papers = grouped(rows, "paper")
    paper = pick("Paper", list(papers), key="paper")
    places = grouped(papers.get(paper, ()), "place")
    table(places.get(pick("Table", list(places), key="place"), ()), _PRINTED, "printed")
    st.subheader("Where papers contradict themselves", anchor=False)
    errata = [one for one in chosen.catalog.rows("errata") if paper in one["paper"].split()]
    table(errata, _ERRATA, "errata")
