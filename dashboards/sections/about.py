"""Section: what outcomes, intervals, methods, benchmarks and profiles are, once for the page."""

from __future__ import annotations

import json
from html import escape

from dashboards.claims.wording import CORRELATION, EXPLAINED, OUTCOMES
from dashboards.contents import Contents, Row
from dashboards.figure import code, heads, scrollable

TITLE = "Definitions"
_PROFILES = (
    "A profile is a variant of a benchmark: faithful (as in the papers' scripts), clean (without"
    " their known flaws), fast (clean with fewer samples) or tiny (for toy models). Frozen weights"
    " are those of the base model; tuned ones were fine-tuned with the method. A task at one length"
    " with one seed is a cell."
)
_ELSEWHERE = (
    "An earlier version of lce planned this study, without definitions of its methods and"
    f" benchmarks. {code('lce methods --markdown')} and {code('lce benchmarks --markdown')} print"
    f" those of the installed version; {code('lce run')} of the study adds them to this page."
)

_NOT_SET = ("name", "version", "profile")
"""Entries of a plug-in's record that are no parameters, or have their own column."""


def section(contents: Contents) -> str:
    """Return what the results mean, a table of the methods and one of the benchmarks.

    A plan of an earlier version describes none; a note then says where they are.

    Args:
      contents: rows of the whole study.
    """
    words = (OUTCOMES, EXPLAINED, CORRELATION)[not contents.expectations :]
    meaning = "".join(f"<p>{escape(text)}</p>" for text in words)
    if not contents.described_benchmarks:
        return f"{meaning}<p>{_PROFILES}</p><p>{_ELSEWHERE}</p>"
    methods = "".join(
        f'<tr><th scope="row">{code(row["method"])}</th><td>{escape(row["summary"])}</td>'
        f"<td>{escape(_parameters(row))}</td><td>{_link(row)}</td></tr>"
        for row in contents.described_methods
    )
    benchmarks = "".join(
        f'<tr><th scope="row">{escape(row["name"].replace("_", " "))}</th>'
        f"<td>{escape(row['summary'])}</td>"
        f"<td>{escape(row['profile'])}: {escape(row['profile_summary'])}</td>"
        f"<td>{escape(_parameters(row))}</td>"
        f"<td>{_link(row)}</td></tr>"
        for row in contents.described_benchmarks
    )
    return (
        f"{meaning}<p>{_PROFILES} Parameters of this study replace defaults that a description"
        " names.</p>"
        + scrollable(heads("method", "what it does", "parameters here", "source"), methods)
        + scrollable(
            heads("benchmark", "what it measures", "profile", "parameters here", "source"),
            benchmarks,
        )
    )


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
    source, place = row["source"], escape(row["place"])
    kind, _, rest = source.partition(":")
    address = {"arXiv": "https://arxiv.org/abs/", "doi": "https://doi.org/"}.get(kind, "") + rest
    if kind == "https":
        address = source
    if not address.startswith("https://"):
        return place
    return f'<a href="{escape(address)}">{escape(source)}</a>, {place}'
