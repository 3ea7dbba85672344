"""Section: values printed in papers, beside the study's own."""

from __future__ import annotations

from dashboards.contents import Contents
from dashboards.figure import Table, table_with_csv
from lce_core.study.variants import weights_label

_NONE = (
    "No paper reports a score for a method, base model, benchmark, task, length and profile of this"
    " study. All scores that the papers report: <code>lce sql"
    ' "FROM paper_scores"</code>.'
)


def section(contents: Contents) -> str:
    """Return a table of the study's values beside the papers', and one of rank agreement.

    Return a sentence if no paper reports a matching score, and "" if no cell is done.

    Args:
      contents: rows of one base model.
    """
    if not contents.run[0]["done"]:
        return ""
    if not contents.papers:
        return f"<p>{_NONE}</p>"
    beside = Table(
        (
            "paper", "place", "method", "weights", "benchmark", "task", "length",
            "ours", "printed", "difference", "our rank", "rank in the paper",
        ),
        [
            (
                row["paper"],
                row["place"],
                row["method"],
                weights_label(row["frozen"]),
                row["benchmark"],
                row["task"],
                row["eval_length"],
                row["value"],
                row["paper_value"],
                row["difference"],
                row["rank"],
                row["paper_rank"],
            )
            for row in contents.papers
        ],
    )  # fmt: skip
    parts = [
        "<p>Accuracies range from 0 to 1. Differences are ours minus the paper's.</p>"
        + table_with_csv("papers beside ours", beside)
    ]
    if contents.agreement:
        columns = [name for name in contents.agreement[0] if name not in ("study", "base_model")]
        agreement = Table(
            [name.replace("_", " ") for name in columns],
            [[row[name] for name in columns] for row in contents.agreement],
        )
        parts += ["<h3>Rank agreement</h3>", table_with_csv("order in papers", agreement)]
    return "".join(parts)
