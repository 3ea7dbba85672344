"""Split a study's hypothesis into lines and select the claims related to each.

A line is prose; readers decide whether it holds. The selected claims concern the methods that the
line names, on its benchmarks and lengths. A line without a length gets claims at the target
context, or at the longest length at which its methods were evaluated. A line without a method gets
claims about the base model or about the best method.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboards.claims.claim import Claim
from dashboards.claims.found import claims
from dashboards.claims.views import BASE, CONTROL, PERPLEXITY, Method, read_views

if TYPE_CHECKING:
    import duckdb

MOST = 8
"""Maximum number of claims per line."""

_GENERIC = {"base", "dynamic", "landmark", "rope", "self", "small"}
"""First words of labels that have another meaning, or mean another method, on their own."""
_ABOUT = {
    PERPLEXITY: (PERPLEXITY,),
    "retriev": ("passkey", "needle", "ruler"),
    "passkey": ("passkey",),
    "needle": ("needle", "ruler"),
    "example": ("many_shot",),
    "shots": ("many_shot",),
    "long eval": ("long_eval",),
    "longbench": ("longbench",),
    "ruler": ("ruler",),
    "short context": ("short_context",),
}
"""Benchmarks by the word stem that refers to them."""
_ALONE = ("without training", "without fine tuning", "frozen", "untouched")
_TUNED = ("tune", "trained on", "steps")
_OF_BASE = ("the base", "base model", "the model", "untouched model")
_TIMES = {"twice": 2, "two times": 2, "four times": 4, "eight times": 8, "sixteen times": 16}


@dataclass(frozen=True)
class Answer:
    """A line of the hypothesis with its related claims."""

    base_model: str
    line: str
    claims: tuple[Claim, ...]
    """Related claims; empty if the study has none."""

    @property
    def speaks_of_holding(self) -> bool:
        """True if a claim uses the word "holds", which `wording.HOLDS` explains."""
        return any(one.topic == "length" for one in self.claims)


def answers(connection: duckdb.DuckDBPyConnection, study: str) -> list[Answer]:
    """Return every sentence of the hypothesis for each base model; empty without a hypothesis.

    Args:
      connection: the catalog.
      study: name of a study in the catalog.

    Raises:
      SpecError: see `claims`.
    """
    views, found = read_views(connection, study), claims(connection, study)
    return [
        Answer(base, line, tuple(_bearing(line, own, views.trained(base))))
        for base, hypothesis in ((row["base_model"], row["hypothesis"]) for row in views.studies)
        for own in ([one for one in found if one.base_model == base],)
        for line in _sentences(hypothesis or "")
    ]


def _sentences(text: str) -> list[str]:
    return [line for line in re.split(r"(?<=[.;])\s+", " ".join(text.split())) if line]


def _bearing(line: str, found: Sequence[Claim], trained: int | None) -> list[Claim]:
    words = _plain(line)
    spoken = _named(words, {one.method for one in found if one.method} - {BASE[0]})
    benchmarks = _benchmarks(words, found)
    lengths = _lengths(line, words, found, trained)
    chosen = [
        one
        for one in found
        if one.benchmark in benchmarks
        and (one.eval_length in lengths if lengths else one.eval_length is None or one.at_target)
        and _fits(one, words)
    ]
    of_base = any(word in words for word in _OF_BASE)
    if spoken:
        picked = _of_methods(chosen, spoken, of_base=of_base)
        if not picked and not lengths:
            # Not evaluated at the target: use each benchmark's longest evaluated length.
            own = [one for one in found if one.benchmark in benchmarks and _fits(one, words)]
            own = _of_methods(own, spoken, of_base=of_base)
            last = {one.benchmark: 0 for one in own}
            for one in own:
                last[one.benchmark] = max(last[one.benchmark], one.eval_length or 0)
            picked = [one for one in own if one.eval_length == last[one.benchmark]]
    elif of_base:
        everywhere = chosen if lengths else [one for one in found if one.benchmark in benchmarks]
        picked = [
            one for one in everywhere if one.topic in ("best", "length") and one.mentions(*BASE)
        ]
    else:
        picked = []
    picked = picked or [one for one in chosen if one.topic == "best"]
    return _spread(picked)[:MOST]


def _spread(picked: Sequence[Claim]) -> list[Claim]:
    """Interleave benchmarks; within each, means over several tasks precede single tasks."""
    several = {(one.topic, one.benchmark) for one in picked if one.task is None}
    queues: dict[str, list[Claim]] = {}
    for one in sorted(
        picked, key=lambda c: c.task is not None and (c.topic, c.benchmark) in several
    ):
        queues.setdefault(one.benchmark, []).append(one)
    rounds = max(map(len, queues.values()), default=0)
    return [queue[n] for n in range(rounds) for queue in queues.values() if n < len(queue)]


def _plain(text: str) -> str:
    """Lowercase the text and separate words by single spaces, with a space at both ends."""
    return f" {' '.join(re.findall(r'[a-z0-9,.]*[a-z0-9]', text.lower().replace('-', ' ')))} "


def _named(words: str, labels: set[str]) -> dict[str, str]:
    """Map labels to the name used in the line; "ntk" matches every label that starts with it."""
    found: dict[str, str] = {}
    rest = words
    names = sorted({one for label in labels for one in _names(label)}, key=len, reverse=True)
    for name in names:
        if f" {name} " in rest:
            rest = rest.replace(f" {name} ", " , ")
            found |= {label: name for label in labels if name in _names(label)}
    return found


def _names(label: str) -> Iterator[str]:
    """Yield the label as words, then the shorter prefixes that still identify it."""
    words = label.lower().replace("-", "_").split("_")
    yield " ".join(words)
    for number in range(1, len(words)):
        if number > 1 or words[0] not in _GENERIC:
            yield " ".join(words[:number])


def _benchmarks(words: str, found: Sequence[Claim]) -> set[str]:
    known = {one.benchmark for one in found}
    spoken = {name for word, names in _ABOUT.items() if f" {word}" in words for name in names}
    return spoken & known or known & {PERPLEXITY, "passkey"} or known


def _lengths(line: str, words: str, found: Sequence[Claim], trained: int | None) -> set[int]:
    """Return the lengths mentioned in a line for which claims exist."""
    known = {one.eval_length for one in found if one.eval_length}
    spoken = {int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\d", line)}
    spoken |= {factor * trained for word, factor in _TIMES.items() if trained and word in words}
    return spoken & known


def _fits(one: Claim, words: str) -> bool:
    """Return True if the claim matches the line's wording about frozen or tuned methods."""
    if one.topic not in ("base", "pair"):
        return True
    named = ((one.method, one.frozen), (one.other_method, one.other_frozen))
    states = {frozen for method, frozen in named if (method, frozen) != BASE}
    if any(word in words for word in _ALONE):
        return states == {True}
    return not any(word in words for word in _TUNED) or states == {False}


def _of_methods(found: Sequence[Claim], spoken: Mapping[str, str], *, of_base: bool) -> list[Claim]:
    alone = _against_controls(found, spoken, of_base=of_base)
    both = [one for one in found if one.topic == "pair" and _compares(one, spoken)]
    # Put first the comparison that the line makes: with the base model, or between methods.
    return [*alone, *both] if of_base else [*both, *alone]


def _against_controls(
    found: Sequence[Claim], spoken: Mapping[str, str], *, of_base: bool
) -> list[Claim]:
    """Return claims that compare a named method with a control.

    A tuned method is compared with the tuned control (same training, no extension). Its comparison
    with the frozen base model is kept only if the line mentions the base model or no comparison
    with the tuned control exists.
    """
    at_base, at_control = (
        [(one, side) for one in found if (side := _beside(one, control)) and side[0] in spoken]
        for control in (BASE, CONTROL)
    )
    tuned = [one for one, (_, frozen) in at_control if not frozen]
    if tuned and not of_base:
        at_base = [(one, side) for one, side in at_base if side[1]]
    return [*(one for one, _ in at_base), *tuned]


def _beside(one: Claim, control: Method) -> tuple[str | None, bool | None] | None:
    """Return the method that a claim compares with the control; None for other claims."""
    if one.topic not in ("base", "pair"):
        return None
    sides = (one.method, one.frozen), (one.other_method, one.other_frozen)
    return next((side for side, other in (sides, sides[::-1]) if other == control), None)


def _compares(one: Claim, spoken: Mapping[str, str]) -> bool:
    """Return True if the claim compares two methods that the line names differently."""
    first, other = spoken.get(one.method or ""), spoken.get(one.other_method or "")
    return first is not None and other is not None and first != other
