"""Section: the best method at each length beyond the trained context."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.claims import Claim, firsts
from dashboards.claims.wording import EXPLAINED, at
from dashboards.contents import Contents


def section(contents: Contents, found: Sequence[Claim]) -> str:
    """Return the best methods of each benchmark by length; "" if no two methods are comparable.

    Args:
      contents: rows of one base model.
      found: all claims of the study.
    """
    (study,) = contents.studies
    trained = study["trained_context"]
    by_length = firsts(found, study["base_model"], trained)
    if not by_length:
        return ""
    listed = "".join(
        f"<dt>{escape(at(length, trained).capitalize())}</dt>"
        f"<dd><ul>{''.join(map(_item, first))}</ul></dd>"
        for length, first in by_length.items()
    )
    return (
        f"<p>{escape(EXPLAINED)} All pairs: <code>lce claims</code>.</p>"
        f'<dl class="answers">{listed}</dl>'
    )


def _item(one: Claim) -> str:
    return f"<li>{escape(one.sentence)}</li>"
