"""Section: what outcomes, intervals, methods, benchmarks and profiles are, once for the page."""

from __future__ import annotations

import json

from markupsafe import Markup

from dashboards.claims.wording import CORRELATION, EXPLAINED, OUTCOMES
from dashboards.contents import Contents, Row
from dashboards.figure import Table, code, link, paragraph

TITLE = "Definitions"
_PROFILES = (
    "A profile is a variant of a benchmark: faithful (as in the papers' scripts), clean (without"
    " their known flaws), fast (clean with fewer samples) or tiny (for toy models). Frozen weights"
    " are those of the base model; tuned ones were fine-tuned with the method. A task at one length"
    " with one seed is a cell."
)
_NOT_SET = ("name", "version", "profile")
"""Entries of a plug-in's record that are no parameters, or have their own column."""


def section(contents: Contents) -> Markup:
    """Return what the results mean, a table of the methods and one of the benchmarks."""
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
    """Return the paper's place with a link to it; only the place for methods of one's own."""
    source, place = row["source"], row["place"]
    kind, _, rest = source.partition(":")
    address = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}.get(kind, "") + rest
    if kind == "https":
        address = source
    if not address.startswith("https://"):
        return str(place)
    return link(address, source) + f", {place}"
