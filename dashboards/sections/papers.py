"""Section: values printed in papers, beside the study's own."""

from __future__ import annotations

from markupsafe import Markup

from dashboards.contents import Contents
from dashboards.figure import Table, paragraph
from lce_core.study.variants import weights_label

_BESIDE = {
    "paper": "paper", "place": "place", "method": "method", "weights": "weights",
    "benchmark": "benchmark", "task": "task", "eval_length": "length", "value": "ours",
    "paper_value": "printed", "difference": "difference", "rank": "our rank",
    "paper_rank": "rank in the paper",
}  # fmt: skip
_NONE = Markup(
    "No paper reports a score for a method, base model, benchmark, task, length and profile of this"
    " study. All scores that the papers report: <code>lce sql"
    ' "FROM paper_scores"</code>.'
)


def section(contents: Contents) -> Markup:
    """Return a table of the study's values beside the papers', and one of rank agreement.

    Return a sentence if no paper reports a matching score, and "" if no cell is done.
    """
    if not contents.run[0]["done"]:
        return Markup()
    if not contents.papers:
        return paragraph(_NONE)
    rows = [{**row, "weights": weights_label(row["frozen"])} for row in contents.papers]
    beside = Table.of(rows, _BESIDE)
    shown = paragraph("Accuracies range from 0 to 1. Differences are ours minus the paper's.")
    shown += beside.saved("papers beside ours")
    if contents.agreement:
        names = [name for name in contents.agreement[0] if name not in ("study", "base_model")]
        heads = {name: name.replace("_", " ") for name in names}
        agreement = Table.of(contents.agreement, heads)
        shown += Markup("<h3>Rank agreement</h3>") + agreement.saved("order in papers")
    return shown
