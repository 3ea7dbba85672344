"""Sections about the whole study: definitions, confounders, gaps, origin of the numbers, MLflow."""

import json
from collections.abc import Mapping

from markupsafe import Markup

from catalog.mlflow_pages import MlflowPages
from dashboards.claims.wording import CORRELATION, EXPLAINED, OUTCOMES
from dashboards.contents import Contents, Row
from dashboards.families import Variant
from dashboards.figure import Table, Value, code, link, paragraph
from lce_core.study.states import STATES

_PROFILES = (
    "A profile is a variant of a benchmark: faithful (as in the papers' scripts), clean (without"
    " their known flaws), fast (clean with fewer samples) or tiny (for toy models). Frozen weights"
    " are those of the base model; tuned ones were fine-tuned with the method. A task at one length"
    " with one seed is a cell."
)
_NOT_SET = ("name", "version", "profile")
_FACTORS = {
    "factor": "factor", "among": "among", "cells": "cells", "methods": "methods", "value": "value",
    "usual": "usual value", "benchmarks": "benchmarks",
}  # fmt: skip
_ONLY_HERE = Markup(
    "These links work only on the machine with the study's store, while <code>lce up</code> runs"
)


def definitions(contents: Contents) -> Markup:
    words = (OUTCOMES, EXPLAINED, CORRELATION)[not contents.expectations :]
    replaced = "Parameters of this study replace defaults that a description names."
    methods = Table(
        ("method", "what it does", "parameters here", "source"),
        [
            (code(row["method"]), row["summary"], _parameters(row), _link(row))
            for row in contents.described_methods
        ],
    )
    benchmarks = Table(
        ("benchmark", "what it measures", "profile", "parameters here", "source"),
        [
            (
                row["name"].replace("_", " "),
                row["summary"],
                f"{row['profile']}: {row['profile_summary']}",
                _parameters(row),
                _link(row),
            )
            for row in contents.described_benchmarks
        ],
    )
    texts = map(paragraph, (*words, f"{_PROFILES} {replaced}"))
    tables = (table.html() for table in (methods, benchmarks) if table.rows)
    return Markup("").join((*texts, *tables))


def _parameters(row: Row) -> str:
    """Return the parameters of a plug-in that the study sets; "" if it keeps all defaults."""
    settings = map(json.loads, filter(None, row["settings"] or ()))
    texts = [
        ", ".join(f"{name} {value}" for name, value in one.items() if name not in _NOT_SET)
        for one in settings
    ]
    return "; ".join(sorted(dict.fromkeys(filter(None, texts))))


def _link(row: Row) -> str:
    source, place = row["source"], row["place"]
    kind, _, rest = source.partition(":")
    roots = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/", "https": "https:"}
    address = roots.get(kind, "") + rest
    if not address.startswith("https://"):
        return str(place)
    return link(address, source) + f", {place}"


def confounders(contents: Contents) -> Markup:
    if not contents.run[0]["done"]:
        return Markup()
    if not contents.violations:
        return paragraph("Compared cells differ only in the method.")
    legend = paragraph(
        "Compared cells also differ in these factors. Consider the factors before you attribute a"
        " difference to the method."
    )
    return legend + Table.of(contents.violations, _FACTORS).html()


def missing(contents: Contents) -> Markup:
    if not contents.missing:
        return Markup()
    count = sum(row["cells"] for row in contents.missing)
    cells = "1 cell has" if count == 1 else f"{count:,} cells have"
    found = {row["status"] for row in contents.missing}
    meaning = Markup("; ").join(
        Markup("<i>{}</i>: {}").format(state, STATES[state]) for state in STATES if state in found
    )
    table = Table(
        ("method", "base model", "status", "benchmarks", "lengths", "seeds", "cells", "reason"),
        [
            (
                Variant.of(row),
                row["base_model"],
                Markup('<span class="status {0}">{0}</span>').format(row["status"]),
                row["benchmarks"],
                _listed(row["eval_lengths"]),
                _listed(row["seeds"]),
                row["cells"],
                row["reason"],
            )
            for row in contents.missing
        ],
    )
    return Markup("<p>{} no result. {}.</p>{}").format(cells, meaning, table.html())


def origin(contents: Contents) -> Markup:
    commits = dict.fromkeys(row["git_commit"] for row in contents.environments if row["git_commit"])
    commands = [
        *(f"git checkout {commit}" for commit in list(commits)[-1:]),
        "make .venv/installed",  # this target exists in older commits as well
        "export LCE_HOME=$PWD/lce-home-again  # a new home, so that everything is computed again",
        f".venv/bin/lce run {contents.studies[0]['arguments']}",
        f".venv/bin/lce sql \"FROM scores WHERE study = '{contents.study}'\"",
    ]
    names = ("commit", "host", "hardware", "software", "cells", "used")
    table = Table(names, list(map(_environment, contents.environments)))
    shown = table.html() if table.rows else ""
    return Markup('<pre tabindex="0">{}</pre>{}').format("\n".join(commands), shown)


def _environment(row: Row) -> list[Value]:
    commit = Markup("not from a checkout")
    if row["git_commit"] is not None:
        dirty = " with uncommitted changes" if row["git_dirty"] else ""
        commit = code(row["git_commit"][:12]) + dirty
    libraries: Mapping[str, str] = json.loads(row["libraries"])
    versions = ", ".join(f"{name} {version}" for name, version in sorted(libraries.items()))
    return [
        commit,
        row["host"],
        row["hardware"],
        f"Python {row['python']}, {versions}",
        row["num_artifacts"],
        f"{row['first_used']:%Y-%m-%d %H:%M} to {row['last_used']:%Y-%m-%d %H:%M} UTC",
    ]


def _listed(values: list[int]) -> str:
    return ", ".join(f"{value:,}" for value in values)


def mlflow(contents: Contents, pages: MlflowPages | None) -> Markup:
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
