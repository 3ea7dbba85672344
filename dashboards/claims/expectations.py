"""The predictions in a study file (`expects`), with outcomes of the view `expectations`."""

from collections.abc import Iterable
from dataclasses import dataclass

import duckdb

from dashboards.claims import wording
from dashboards.contents import REPORT, Row, grouped, rows_of
from dashboards.families import Variant
from lce_core import formats

_COUNTED = {
    "contradicted": "contradicted",
    "on_one_run": "decided on one training run only",
    "undecided": "undecided",
    "not_measured": "not measured",
}


@dataclass(frozen=True)
class Comparison:
    """A predicted comparison of two methods, with its outcome."""

    outcome: str
    finding: str
    """The comparison with its difference, interval and p-value, and what the outcome rests on."""

    @property
    def text(self) -> str:
        return f"{self.outcome}: {self.finding}"


@dataclass(frozen=True)
class Expectation:
    """One entry of `expects` in the study file, for one base model."""

    base_model: str
    number: int
    """Counted from 1."""
    text: str
    comparisons: tuple[Comparison, ...]
    benchmarks: tuple[str, ...] = ()
    claim: str | None = None
    """Published claim that the entry tests; None if it tests the study's own hypothesis."""
    is_registered: bool = True
    results_before: int | None = None
    withdrawn_after: int | None = None
    blocked_by: int | None = None
    """Number of the undecided entry that keeps this one from being tested; None if it is tested."""

    @property
    def line(self) -> str:
        claim = f" (claim: {self.claim})" if self.claim else ""
        return f"{self.number}. {self.text.rstrip('.')}{claim}: {self.summary}"

    @property
    def summary(self) -> str:
        notes = [counted([self])]
        if self.blocked_by is not None:
            notes.append(f"not tested, because expectation {self.blocked_by} is undecided")
        if not self.is_registered:
            before = self.results_before
            when = wording.stage(before) if before else "at an unknown time"
            notes.append(f"added {when}, so exploratory")
        if self.withdrawn_after is not None:
            notes.append(f"withdrawn {wording.stage(self.withdrawn_after)}")
        return "; ".join(notes)


def counted(expected: Iterable[Expectation]) -> str:
    """Return the number of comparisons by outcome, such as "3 of 4 confirmed, 1 undecided"."""
    outcomes = [one.outcome for entry in expected for one in entry.comparisons]
    names = {"on one training run": "on_one_run", "too few": "undecided"}
    columns = [names.get(one, one).replace(" ", "_") for one in outcomes]
    counts = {f"num_{name}": columns.count(name) for name in ("confirmed", *_COUNTED)}
    return outcomes_in_words({"num_comparisons": len(outcomes), **counts})


def outcomes_in_words(row: Row) -> str:
    numbers = [(row[f"num_{name}"], words) for name, words in _COUNTED.items()]
    return ", ".join(
        [
            f"{row['num_confirmed']} of {row['num_comparisons']} confirmed",
            *(f"{number} {words}" for number, words in numbers if number),
        ]
    )


def expectations(connection: duckdb.DuckDBPyConnection, study: str) -> list[Expectation]:
    queries = {name: REPORT[name] for name in ("studies", "expectations")}
    found = rows_of(connection, study, queries)
    trained = {row["base_model"]: row["trained_context"] for row in found["studies"]}

    def place(row: Row) -> tuple[str, bool, int, bool]:
        is_withdrawn, is_late = row["withdrawn_after"] is not None, not row["is_registered"]
        return row["base_model"], is_withdrawn, row["entry"], is_late

    return [
        Expectation(
            base_model,
            entry + 1,
            own[0]["text"],
            tuple(Comparison(row["outcome"], _finding(row, trained[base_model])) for row in own),
            tuple(dict.fromkeys(row["benchmark"] for row in own)),
            own[0]["claim"],
            not is_late,
            max(row["results_before"] or 0 for row in own),
            own[0]["withdrawn_after"],
            next((row["blocked_by"] + 1 for row in own if row["blocked_by"] is not None), None),
        )
        for (base_model, _, entry, is_late), own in grouped(
            sorted(found["expectations"], key=place), place
        ).items()
    ]


def _finding(row: Row, trained: int | None) -> str:
    where = wording.at(row["eval_length"], trained)
    if row["expected"] == "predicts":
        what = f"perplexity and {row['benchmark']}"
        if row["among"]:
            what += f" over {wording.listed(row['among'])}"
        result = "mean Kendall's tau over documents = "
    else:
        measured = {"metric": row["metric"], "benchmark": row["benchmark"]}
        ours, theirs = map(wording.named, Variant.pair(row))
        what = f"{ours} minus {theirs} in {wording.measured(measured, several=False)}"
        result = ""
    if row["outcome"] == "not measured" or row["difference"] is None:
        return f"{where}, {what}"
    value = formats.difference(row["difference"] + 0.0, row["ci_low"], row["ci_high"])
    notes = [f"{where}, {what}: {result}{value}"]
    if row["p_adjusted"] is not None and row["blocked_by"] is None:
        notes[0] += f", {formats.p_value(row['p_adjusted'], row['family'])}"
    if row["margin"] is not None:
        size = f"{100 * row['margin']:g} %" if row["is_ratio"] else f"{row['margin']:g}"
        notes.append(f"expected {row['expected']} within {size}")
    return "; ".join([*notes, *_reasons(row)])


def _reasons(row: Row) -> Iterable[str]:
    """Yield why the outcome is no finding about the methods, and what would decide it."""
    if row["outcome"] == "on one training run":
        verdict = (row["margin"] is None and row["verdict"]) or "decided"
        yield f"{verdict} for these weights only, other training seeds may differ"
    if row["outcome"] == "too few":
        yield "too few seeds, documents or prompts to decide any difference"
    if row["outcome"] != "undecided":
        return
    if row["blocked_by"] is not None:
        yield f"not tested, because expectation {row['blocked_by'] + 1} is undecided"
        return
    if row["verdict_on_checkpoints"] in ("better", "worse"):
        yield f"{row['verdict_on_checkpoints']} on these checkpoints"
    if row["ci_low"] is not None and (needed := wording.needed(row)):
        yield f"{needed} would decide (80 % power)"
