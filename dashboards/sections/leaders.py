"""Who is first at each length beyond the trained context, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.claims import Claim
from dashboards.claims.wording import at
from dashboards.contents import Contents


def section(contents: Contents, found: Sequence[Claim]) -> str:
    """The first of each benchmark, length by length; "" where no two methods can be compared.

    Args:
      contents: of one base model.
      found: claims of the study.
    """
    (study,) = contents.studies
    trained = study["trained_context"]
    first = [
        one
        for one in found
        if one.topic == "best"
        and one.base_model == study["base_model"]
        and (one.eval_length or 0) > (trained or 0)
    ]
    if not first:
        return ""
    return (
        "<p>Differences are those on the same prompts, with 95 % intervals. What a study <i>could"
        " see</i> is the smallest difference that its test finds four times in five; smaller ones"
        " may be there. The others, pair by pair: <code>lce claims</code>.</p>"
        f'<dl class="answers">{"".join(_at(length, trained, first) for length in _lengths(first))}'
        "</dl>"
    )


def _lengths(found: Sequence[Claim]) -> list[int]:
    return sorted({one.eval_length for one in found if one.eval_length is not None})


def _at(length: int, trained: int | None, found: Sequence[Claim]) -> str:
    items = "".join(
        f"<li>{escape(one.sentence)}</li>" for one in found if one.eval_length == length
    )
    return f"<dt>{escape(at(length, trained).capitalize())}</dt><dd><ul>{items}</ul></dd>"
