"""The predictions in a study file (`expects`) and how each of their comparisons turned out.

The outcomes are those of the view `expectations`; the sentences are those of `claims`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Literal, get_args

from dashboards.claims import wording
from dashboards.claims.claim import Claim
from dashboards.claims.found import claims
from dashboards.claims.views import Views, first, other, read_views
from dashboards.contents import Row
from dashboards.registered import stage

if TYPE_CHECKING:
    import duckdb

Outcome = Literal["confirmed", "contradicted", "undecided", "not measured"]


@dataclass(frozen=True)
class Comparison:
    """A predicted comparison of two methods, with its outcome."""

    outcome: Outcome
    finding: str
    """Text of the claim; length, methods and benchmark if the outcome is `not measured`."""

    @property
    def text(self) -> str:
        """Outcome and finding in one line, such as "confirmed: at 512 tokens, ..."."""
        return f"{self.outcome}: {self.finding}"


@dataclass(frozen=True)
class Expectation:
    """One entry of `expects` in the study file, for one base model."""

    base_model: str
    text: str
    comparisons: tuple[Comparison, ...]
    results_before: int = 0
    """Number of the study's results when the last of these comparisons was registered; 0 if none
    or unknown."""

    @property
    def summary(self) -> str:
        """Number of comparisons by outcome, as `counted` formats it, and a note on amendments."""
        if not self.results_before:
            return counted([self])
        return f"{counted([self])}; added {stage(self.results_before)}, so exploratory"


def counted(expected: Sequence[Expectation]) -> str:
    """Return the number of comparisons by outcome, such as "3 of 4 confirmed, 1 undecided"."""
    number = Counter(one.outcome for entry in expected for one in entry.comparisons)
    return outcomes_in_words(
        {
            "num_comparisons": number.total(),
            **{f"num_{one.replace(' ', '_')}": number[one] for one in get_args(Outcome)},
        }
    )


def outcomes_in_words(row: Row) -> str:
    """Return "3 of 4 confirmed, 1 undecided" from the columns of the view `claims`."""
    others = ("contradicted", "undecided", "not measured")
    numbers = [(row[f"num_{one.replace(' ', '_')}"], one) for one in others]
    return ", ".join(
        [
            f"{row['num_confirmed']} of {row['num_comparisons']} confirmed",
            *(f"{number} {outcome}" for number, outcome in numbers if number),
        ]
    )


def expectations(connection: duckdb.DuckDBPyConnection, study: str) -> list[Expectation]:
    """Return the study's expectations for each base model; empty if it has none.

    Args:
      connection: the catalog.
      study: name of a study in the catalog.

    Raises:
      SpecError: see `claims`.
    """
    views = read_views(connection, study)
    by_pair: dict[tuple[object, ...], Claim] = {
        (one.base_model, one.benchmark, one.eval_length, one.task, _pair(one)): one
        for one in claims(connection, study)
        if one.topic in ("base", "pair", "order")  # orders: all methods, then the exact ones
    }
    own = (row for row in views.expectations if row["entry"] is not None)
    rows = sorted(own, key=lambda row: (row["base_model"], row["entry"]))
    return [
        Expectation(
            base_model,
            own[0]["text"],
            tuple(Comparison(row["outcome"], _finding(row, by_pair, views)) for row in own),
            max(row["results_before"] or 0 for row in own),
        )
        for (base_model, _), group in groupby(rows, lambda row: (row["base_model"], row["entry"]))
        for own in [list(group)]
    ]


def _finding(row: Row, by_pair: dict[tuple[object, ...], Claim], views: Views) -> str:
    pair = first(row), other(row)
    task = None if row["tasks"] is None or "," in row["tasks"] else row["tasks"]
    key = (row["base_model"], row["benchmark"], row["eval_length"], task, frozenset(pair))
    if row["outcome"] != "not measured":
        return f"{by_pair[key].text}{_margin(row)}"
    where = wording.at(row["eval_length"], views.trained(row["base_model"]))
    if row["expected"] == "predicts":
        return f"{where}, perplexity and {row['benchmark']}"
    names = " and ".join(map(wording.named, pair))
    return f"{where}, {names} on {row['benchmark']}"


def _margin(row: Row) -> str:
    if row["margin"] is None:
        return ""
    size = f"{100 * row['margin']:g} %" if row["is_ratio"] else f"{row['margin']:g}"
    needed = wording.needed(row) if row["outcome"] == "undecided" else ""
    return f"; expected {row['expected']} within {size}" + (
        f": {needed} would decide (80 % power)" if needed else ""
    )


def _pair(claim: Claim) -> frozenset[object]:
    return frozenset([(claim.method, claim.frozen), (claim.other_method, claim.other_frozen)])
