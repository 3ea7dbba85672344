"""Section: the hypothesis line by line, each with its related claims."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from dashboards.claims import Answer
from dashboards.claims.wording import HOLDS


def section(said: Sequence[Answer]) -> str:
    """Return the lines of the hypothesis with their claims; "" if no line has a claim.

    Args:
      said: lines of the hypothesis for one base model.
    """
    if not any(answer.claims for answer in said):
        return ""
    explained = f" {escape(HOLDS)}" if any(one.speaks_of_holding for one in said) else ""
    return (
        "<p>Whether a line holds is for the reader to say. Below it stand the findings about the"
        " methods, benchmarks and lengths that it names, each as far as its test supports it."
        f"{explained}</p>"
        f'<dl class="answers">{"".join(map(_answer, said))}</dl>'
    )


def _answer(answer: Answer) -> str:
    found = "".join(f"<li>{escape(claim.sentence)}</li>" for claim in answer.claims)
    told = f"<ul>{found}</ul>" if found else "<p>No finding of this study bears on it.</p>"
    return f"<dt>{escape(answer.line)}</dt><dd>{told}</dd>"
