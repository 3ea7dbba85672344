"""A study's hypothesis, line by line, each with the claims that bear on it.

A line is prose, and whether it holds is for a reader to say. What is found here is what to read:
the methods that a line names, on the benchmarks and at the lengths that it speaks of; where it
speaks of none, at the target context, or else the longest at which these methods were asked. Lines
that name no method get the claims of the base model, or of who is best.
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
"""Claims below a line."""

_GENERIC = {"base", "dynamic", "landmark", "rope", "self", "small"}
"""First words of labels that alone mean something else, or another method."""
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
"""Benchmarks by a word that speaks of them."""
_ALONE = ("without training", "without fine tuning", "frozen", "untouched")
_TUNED = ("tune", "trained on", "steps")
_OF_BASE = ("the base", "base model", "the model", "untouched model")
_TIMES = {"twice": 2, "two times": 2, "four times": 4, "eight times": 8, "sixteen times": 16}


@dataclass(frozen=True)
class Answer:
    """A line of the hypothesis, and what the study found that bears on it."""

    base_model: str
    line: str
    claims: tuple[Claim, ...]
    """Empty where no claim of the study does."""

    @property
    def speaks_of_holding(self) -> bool:
        """Whether a claim says that a score holds, which `wording.HOLDS` explains."""
        return any(one.topic == "length" for one in self.claims)


def answers(connection: duckdb.DuckDBPyConnection, study: str) -> list[Answer]:
    """Every sentence of the hypothesis, for each base model; none without a hypothesis.

    Args:
      connection: the catalog.
      study: name of a study in it.

    Raises:
      SpecError: as `claims`.
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
            # Not asked at the longest length of all: where they were asked last.
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
    """Benchmarks in turn, in each means over several tasks before single tasks."""
    several = {(one.topic, one.benchmark) for one in picked if one.task is None}
    queues: dict[str, list[Claim]] = {}
    for one in sorted(
        picked, key=lambda c: c.task is not None and (c.topic, c.benchmark) in several
    ):
        queues.setdefault(one.benchmark, []).append(one)
    rounds = max(map(len, queues.values()), default=0)
    return [queue[n] for n in range(rounds) for queue in queues.values() if n < len(queue)]


def _plain(text: str) -> str:
    """In small letters and words parted by one space each, with a space at both ends."""
    return f" {' '.join(re.findall(r'[a-z0-9,.]*[a-z0-9]', text.lower().replace('-', ' ')))} "


def _named(words: str, labels: set[str]) -> dict[str, str]:
    """By label, the name under which a line speaks of it; `NTK` is every label that begins so."""
    found: dict[str, str] = {}
    rest = words
    names = sorted({one for label in labels for one in _names(label)}, key=len, reverse=True)
    for name in names:
        if f" {name} " in rest:
            rest = rest.replace(f" {name} ", " , ")
            found |= {label: name for label in labels if name in _names(label)}
    return found


def _names(label: str) -> Iterator[str]:
    """The label in words, and its beginnings that still mean it."""
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
    """Lengths that a line speaks of, where there are claims at them."""
    known = {one.eval_length for one in found if one.eval_length}
    spoken = {int(n.replace(",", "")) for n in re.findall(r"\d[\d,]*\d", line)}
    spoken |= {factor * trained for word, factor in _TIMES.items() if trained and word in words}
    return spoken & known


def _fits(one: Claim, words: str) -> bool:
    """Of frozen methods only where a line says so, and of tuned ones only where it says that."""
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
    # Whom a line compares comes first; a method alone is held against its control.
    return [*alone, *both] if of_base else [*both, *alone]


def _against_controls(
    found: Sequence[Claim], spoken: Mapping[str, str], *, of_base: bool
) -> list[Claim]:
    """Methods that a line speaks of against the model that had the same training and no method.

    Tuned ones against the base model only where the line speaks of that, or there is no other.
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
    """The method that a claim holds against a control; None if it is not about one."""
    if one.topic not in ("base", "pair"):
        return None
    sides = (one.method, one.frozen), (one.other_method, one.other_frozen)
    return next((side for side, other in (sides, sides[::-1]) if other == control), None)


def _compares(one: Claim, spoken: Mapping[str, str]) -> bool:
    """Two methods that a line speaks of by different names."""
    first, other = spoken.get(one.method or ""), spoken.get(one.other_method or "")
    return first is not None and other is not None and first != other
