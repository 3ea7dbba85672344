"""Section: links to the study's runs in MLflow, on a team's server or on the store's machine."""

from __future__ import annotations

from html import escape

from catalog.mlflow_pages import MlflowPages
from dashboards.contents import Contents
from dashboards.families import Variant


def section(contents: Contents, pages: MlflowPages | None) -> str:
    """Return links to the study's charts in MLflow and to the run of each method.

    Args:
      contents: rows of the whole study.
      pages: addresses of the study in the MLflow UI; if None, return "".
    """
    if pages is None:
        return ""
    several = len(contents.studies) > 1
    runs = []
    for row in contents.overview:
        address = pages.run(row["base_model"], row["method"], row["frozen"])
        if address is not None:
            which = f", {row['base_model']}" if several else ""
            runs.append(f"<li>{_link(address, Variant.of(row).label + which)}</li>")
    works = (
        f"Charts on {escape(pages.team)}"
        if pages.team
        else "These links work only on the machine with the study's store, while"
        " <code>lce up</code> runs"
    )
    return (
        f"<p>MLflow shows loss, throughput, settings and records of each run. {works}: "
        f"{_link(pages.methods, 'all methods, one line each')};"
        f" {_link(pages.seeds, 'seeds, grouped by method')}.</p>"
        f"<details><summary>Runs of the methods</summary><ul>{''.join(runs)}</ul></details>"
    )


def _link(address: str, text: str) -> str:
    return f'<a href="{escape(address)}">{escape(text)}</a>'
