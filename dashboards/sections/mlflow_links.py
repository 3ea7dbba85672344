"""Section: links to the study's runs in MLflow, on a team's server or on the store's machine."""

from __future__ import annotations

from markupsafe import Markup

from catalog.mlflow_pages import MlflowPages
from dashboards.contents import Contents
from dashboards.families import Variant
from dashboards.figure import link

_ONLY_HERE = Markup(
    "These links work only on the machine with the study's store, while <code>lce up</code> runs"
)


def section(contents: Contents, pages: MlflowPages | None) -> Markup:
    """Return links to the study's charts in MLflow and to the run of each method.

    Args:
      pages: addresses of the study in the MLflow UI; if None, return "".
    """
    if pages is None:
        return Markup()
    several = len(contents.studies) > 1
    runs = Markup()
    for row in contents.overview:
        address = pages.run(row["base_model"], row["method"], row["frozen"])
        if address is not None:
            which = f", {row['base_model']}" if several else ""
            runs += Markup("<li>{}</li>").format(link(address, Variant.of(row).label + which))
    return Markup(
        "<p>MLflow shows loss, throughput, settings and records of each run. {}: {}; {}.</p>"
        "<details><summary>Runs of the methods</summary><ul>{}</ul></details>"
    ).format(
        f"Charts on {pages.team}" if pages.team else _ONLY_HERE,
        link(pages.methods, "all methods, one line each"),
        link(pages.seeds, "seeds, grouped by method"),
        runs,
    )
