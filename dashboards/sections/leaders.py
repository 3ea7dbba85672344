"""Section: the best method at each length beyond the trained context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape

from dashboards.claims import Claim, firsts
from dashboards.claims.wording import EXPLAINED, at
from dashboards.contents import Contents


def section(contents: Contents, found: Sequence[Claim]) -> str:
    """Return, for each length, the best methods of each benchmark as sentences.

    Return "" if no two methods are comparable.

    Args:
      contents: rows of one base model.
      found: all claims of the study.
    """
    (study,) = contents.studies
    trained = study["trained_context"]
    by_length = firsts(found, study["base_model"], trained)
    if not by_length:
        return ""
    listed = "".join(_at_length(at(length, trained), first) for length, first in by_length.items())
    return (
        f"<p>{escape(EXPLAINED)} All pairs: <code>lce claims</code>.</p>"
        f'<dl class="answers">{listed}</dl>'
    )


def _at_length(where: str, found: Sequence[Claim]) -> str:
    """Return an HTML term with the length, and a description with the claims about it."""
    shown = [replace(one, text=one.text.removeprefix(f"{where}, ")) for one in found]
    items = "".join(f"<li>{escape(one.sentence)}</li>" for one in shown)
    return f"<dt>{escape(where.capitalize())}</dt><dd><ul>{items}</ul></dd>"
