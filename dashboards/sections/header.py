"""Page header: the hypothesis, the main findings, and what was run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.comparable import base_context
from dashboards.contents import Contents, Row
from dashboards.registered import registered

MOST_SENTENCES = 3
"""Number of findings that are always visible. Further ones are in a collapsed list."""


def section(contents: Contents, claims: Sequence[str]) -> str:
    """Return the header as HTML: study name, hypothesis, findings, and facts about the run.

    Args:
      contents: rows of the whole study.
      claims: findings as plain text, the most important first.
    """
    hypothesis = contents.studies[0]["hypothesis"]
    parts = [f"<h1>{escape(contents.study)}</h1>"]
    if hypothesis:
        when = escape(registered(contents.registrations, contents.settled))
        note = f'<p class="note">{when}</p>' if when else ""
        parts.append(
            f'<div class="hypothesis"><h2>Hypothesis</h2><p>{escape(hypothesis)}</p>{note}</div>'
        )
    if claims:
        sentences = "".join(f"<p>{escape(claim)}</p>" for claim in claims[:MOST_SENTENCES])
        parts.append(f'<div class="answer"><h2>Findings</h2>{sentences}{_more(claims)}</div>')
    kind = "first answered" if claims else "first"
    return f'<header class="{kind}">{"".join(parts)}{_facts(contents)}</header>'


def _more(claims: Sequence[str]) -> str:
    others = claims[MOST_SENTENCES:]
    if not others:
        return ""
    items = "".join(f"<li>{escape(claim)}</li>" for claim in others)
    return f"<details><summary>{len(others)} more</summary><ul>{items}</ul></details>"


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
