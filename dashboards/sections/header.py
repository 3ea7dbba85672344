"""Page header: the hypothesis, its outcome, and what was run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.claims import Expectation, counted
from dashboards.comparable import base_context
from dashboards.contents import Contents, Row
from dashboards.registered import registered


def section(contents: Contents, expected: Sequence[Expectation]) -> str:
    """Return the header as HTML: study name, hypothesis with its outcome, facts about the run.

    Args:
      contents: rows of the whole study.
      expected: the study's expectations.
    """
    hypothesis = contents.studies[0]["hypothesis"]
    parts = [f"<h1>{escape(contents.study)}</h1>"]
    if hypothesis:
        when = escape(registered(contents.registrations, contents.settled))
        outcome = f"Comparisons that test it: {counted(expected)}. " if expected else ""
        note = f'<p class="note">{outcome}{when}</p>' if outcome or when else ""
        parts.append(
            f'<div class="hypothesis"><h2>Hypothesis</h2><p>{escape(hypothesis)}</p>{note}</div>'
        )
    return f'<header class="first">{"".join(parts)}{_facts(contents)}</header>'


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
