"""First screen: what the study expected, what came out, what to use and what to distrust."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from dashboards.charts.dots import Panel, dots_svg
from dashboards.claims import Expectation
from dashboards.claims.summary import Summary
from dashboards.comparable import base_context
from dashboards.contents import Contents, Row
from dashboards.families import Variant, method_looks
from dashboards.figure import names_as_code
from dashboards.registered import registered

MOST_PANELS = 8
"""Panels of the dot plot; further benchmarks are in the section At a glance."""
PICTURE = "Methods beyond the trained context"


def section(contents: Contents, found: Sequence[Summary]) -> str:
    """Return the header as HTML, with one part per base model.

    Args:
      contents: rows of the whole study.
      found: summaries of the study, one per base model.
    """
    hypothesis = contents.studies[0]["hypothesis"]
    parts = [f"<h1>{escape(contents.study)}</h1>"]
    if hypothesis:
        when = escape(registered(contents.registrations, contents.settled))
        note = f'<p class="note">{when}</p>' if when else ""
        parts.append(
            f'<div class="hypothesis"><h2>Hypothesis</h2><p>{escape(hypothesis)}</p>{note}</div>'
        )
    for one in found:
        title = f"<h2>{escape(one.base_model)}</h2>" if len(found) > 1 else ""
        parts.append(title + _summary(contents.of(one.base_model), one))
    return f'<header class="first">{"".join(parts)}{_facts(contents)}</header>'


def _summary(contents: Contents, one: Summary) -> str:
    variants = [Variant.of(row) for row in contents.overview]

    def listed(sentences: Iterable[str]) -> str:
        items = "".join(f"<li>{names_as_code(text, variants)}</li>" for text in sentences)
        return f"<ul>{items}</ul>" if items else "<p>Nothing known.</p>"

    outcomes = "".join(
        f"<p><b>{escape(sentence)}</b></p>{entries_html(entries, variants)}"
        for sentence, entries in one.outcomes()
    )
    recommended = "".join(f"<p>{names_as_code(text, variants)}</p>" for text in one.recommended())
    return (
        f'<div class="summary"><div><h2>Expected and found</h2>{outcomes}</div>'
        f"<div><h2>Which method</h2>{recommended or '<p>No two methods are comparable.</p>'}"
        f"<h2>What to distrust</h2>{listed(one.distrust())}<p>{one.total_cost()}</p></div></div>"
        f"{_dots(contents, one)}"
    )


def entries_html(entries: Iterable[Expectation], variants: Sequence[Variant]) -> str:
    """Return each entry with its outcomes in brackets, and its comparisons in a folded list."""
    return "".join(
        f'<details class="entry"><summary>{escape(one.line)}'
        "</summary><ul>"
        + "".join(
            f"<li><b>{found.outcome}</b>: {names_as_code(found.finding, variants)}</li>"
            for found in one.comparisons
        )
        + "</ul></details>"
        for one in entries
    )


def dot_plot(contents: Contents, one: Summary) -> str:
    """Return the dot plot of all methods as SVG; "" without a result beyond the trained context."""
    panels = [
        Panel(name, length, rows)
        for name in one.benchmarks
        for length in one.lengths
        if (rows := one.scores(name, length))
    ][:MOST_PANELS]
    if not panels:
        return ""
    order = list(dict.fromkeys(Variant.of(row) for panel in panels for row in panel.rows))
    return dots_svg(PICTURE, panels, order, method_looks(contents.overview, contents.families))


def _dots(contents: Contents, one: Summary) -> str:
    if not (picture := dot_plot(contents, one)):
        return ""
    return (
        f'<figure data-figure="{PICTURE}"><figcaption><h3>{PICTURE}</h3><p>Means with 95 %'
        " intervals, where all seeds are done. Best first, by the first column; hollow: frozen"
        f' weights.</p></figcaption><div class="wide"><div class="panel" tabindex="0" role="group"'
        f' aria-label="picture">{picture}</div></div><div class="tools" hidden>'
        '<button type="button" data-save="svg">SVG</button></div></figure>'
    )


def _facts(contents: Contents) -> str:
    run, first = contents.run[0], contents.studies[0]
    facts = {
        "base model": ", ".join(map(_base, contents.studies)),
        "extended to": f"{first['target_context']:,} tokens",
        "seeds": str(run["seeds"]),
        "cells": f"{run['done']:,} of {run['cells']:,} done",
        "profile": run["profiles"] or "-",
        "date": f"{run['last']:%Y-%m-%d}" if run["last"] else "nothing has been run yet",
    }
    items = "".join(
        f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items()
    )
    return f'<dl class="facts">{items}</dl>'


def _base(row: Row) -> str:
    name, context = row["base_model"], base_context(row)
    return f"{name} ({context})" if context else str(name)
