"""Collect all claims of a study from the catalog's views."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import duckdb

from dashboards.claims import wording
from dashboards.contents import Row, grouped, rows_of
from dashboards.families import Variant
from lce_core import formats
from lce_core.kinds import Kind
from lce_core.study.variants import CONTROL

BASE = Variant(CONTROL, True)
_KINDS = get_args(Kind)
"""Claims of text come first, those of learning last."""
_TOPICS = ("base", "order", "length", "pair")
_UNDECIDED = ("the same", "undecided", "too few")
_SAME = (
    "base_model", "benchmark", "eval_length", "task", "method", "frozen", "other_method",
    "other_frozen", "difference", "value", "p_adjusted", "family", "num_seeds",
    "smallest_detectable", "num_needed",
)  # fmt: skip
_QUERIES = {
    "studies": "FROM studies WHERE study = $study",
    "pairs": "FROM paired_difference WHERE study = $study",
    "lengths": "FROM effective_length WHERE study = $study AND rule = 'kept'",
    "orders": "FROM perplexity_agreement WHERE study = $study",
    "kinds": "SELECT DISTINCT benchmark, kind FROM cells WHERE study = $study",
}

Topic = Literal["base", "pair", "length", "order"]
"""Subject of the claim: `base` is a method against the base model, `pair` two other methods,
`length` the effective context length of a method, `order` whether perplexity predicts a benchmark.
"""
Verdict = Literal["better", "the same", "undecided", "too few", "holds", "order", "no order found"]
Trained = Mapping[str, int | None]


@dataclass(frozen=True)
class Claim:
    """One finding and its sentence. Fields that do not apply to the topic are None."""

    topic: Topic
    verdict: Verdict
    text: str
    """One ASCII sentence without the full stop."""
    base_model: str
    benchmark: str
    eval_length: int | None = None
    """Evaluated length in tokens; None for topic `length`."""
    task: str | None = None
    """Task name; None for the mean over several tasks."""
    method: str | None = None
    """The method that the claim is about; the better one if the difference is significant."""
    frozen: bool | None = None
    other_method: str | None = None
    other_frozen: bool | None = None
    """The method that the first one is compared with."""
    difference: float | None = None
    """Score of the first method minus that of the other, in the benchmark's unit."""
    low: float | None = None
    high: float | None = None
    """Upper end of the 95 % interval (`low` is the lower end) of the difference, the effective
    length in tokens, or Kendall's correlation."""
    value: float | None = None
    """Score or effective length (tokens) of the first method; Kendall's correlation for topic
    `order`."""
    p_adjusted: float | None = None
    family: str | None = None
    """Comparisons that `p_adjusted` is corrected for: primary (predicted by the study file), short
    context (with the base model within its trained context) or exploratory."""
    num_samples: int | None = None
    num_seeds: int | None = None
    smallest_detectable: float | None = None
    num_needed: int | None = None
    """Number of training seeds or else of independent samples that would decide an undecided
    comparison with 80 % power, if the true difference equals the measured one."""

    def mentions(self, method: str, frozen: bool | None = None) -> bool:
        """Return True if either side is this method; `frozen` None matches both variants."""
        named = [(self.method, self.frozen), (self.other_method, self.other_frozen)]
        return any(name == method and frozen in (None, state) for name, state in named)


def claims(connection: duckdb.DuckDBPyConnection, study: str) -> list[Claim]:
    views = rows_of(connection, study, _QUERIES)
    trained = {row["base_model"]: row["trained_context"] for row in views["studies"]}
    kinds = {row["benchmark"]: row["kind"] for row in views["kinds"]}
    return sorted(
        [
            *_pairs(views["pairs"], trained),
            *_orders(views["orders"], trained),
            *_lengths(views["lengths"]),
        ],
        key=lambda one: (
            one.base_model,
            _KINDS.index(kinds[one.benchmark]),
            one.benchmark != "perplexity",
            one.benchmark,
            one.eval_length or 0,
            _TOPICS.index(one.topic),
        ),
    )


def told_apart(found: Sequence[Claim]) -> list[Claim]:
    if len({one.base_model for one in found}) < 2:
        return list(found)
    return [replace(one, text=f"with {one.base_model}, {one.text}") for one in found]


def _lengths(rows: Sequence[Row]) -> Iterator[Claim]:
    several = _with_more_tasks(rows, "task")
    for row in rows:
        metric = "nll" if row["unit"] == "nats" else row["unit"]
        what = wording.measured(
            {**row, "metric": metric, "tasks": row["task"]}, row["benchmark"] in several
        )
        bar = "at least" if row["higher_is_better"] else "at most"
        threshold = f"{formats.rounded(row['threshold'])}{wording.unit(row)}"
        held = (
            f"its {what} is {bar} {threshold} up to this length"
            if row["tokens"]
            else f"its {what} is not {bar} {threshold} even at the shortest evaluated length"
        )
        yield Claim(
            "length",
            "holds",
            f"{wording.named(Variant.of(row))} has an effective context of {row['tokens']:,} tokens"
            f" [{row['ci_low']:,} to {row['ci_high']:,}]: {held};"
            f" evaluated up to {row['longest']:,} tokens",
            value=row["tokens"],
            low=row["ci_low"],
            high=row["ci_high"],
            **_same(row, "base_model", "benchmark", "task", "method", "frozen", "num_seeds"),
        )


def _orders(rows: Sequence[Row], trained: Trained) -> Iterator[Claim]:
    for row in rows:
        if row["kendall_low"] is None or row["p_adjusted"] is None:
            continue  # too few methods, or all have equal scores
        who = "methods" if row["methods"] == "all" else "methods with exact attention"
        where = wording.at(row["eval_length"], trained[row["base_model"]])
        sign = "better" if row["kendall"] > 0 else "worse"
        is_order = row["p_adjusted"] <= 0.05 and row["kendall_low"] * row["kendall_high"] > 0
        relation = (
            f"methods with a lower perplexity have {sign} scores"
            if is_order
            else "no rank correlation between perplexity and scores is decided"
        )
        yield Claim(
            "order",
            "order" if is_order else "no order found",
            f"{where}, in this study, {relation} on {row['benchmark']}: Kendall's tau ="
            f" {formats.estimate(row['kendall'], row['kendall_low'], row['kendall_high'])}"
            f" over {row['num_methods']} {who}; {formats.p_value(row['p_adjusted'])}",
            value=row["kendall"],
            low=row["kendall_low"],
            high=row["kendall_high"],
            **_same(row, "base_model", "benchmark", "eval_length", "p_adjusted"),
        )


def _pairs(rows: Sequence[Row], trained: Trained) -> Iterator[Claim]:
    """Yield one claim per pair of methods; the better method is the subject of the sentence.

    If neither is better, the subject is the method compared with the base model, or that of the
    first row.
    """
    several = _with_more_tasks(rows, "tasks")
    seen = set()
    for row in rows:
        ours, theirs = Variant.pair(row)
        axes = ("base_model", "benchmark", "tasks", "eval_length", "profile")
        key = (*(row[axis] for axis in axes), frozenset([ours, theirs]))
        if key in seen or row["verdict"] == "worse":
            continue
        if row["verdict"] in _UNDECIDED and ours == BASE:
            continue  # reported from the method's side
        seen.add(key)
        where = wording.at(row["eval_length"], trained[row["base_model"]])
        yield Claim(
            "base" if BASE in (ours, theirs) else "pair",
            row["verdict"],
            f"{where}, {_said(row, row['benchmark'] in several)}",
            low=row["ci_low"],
            high=row["ci_high"],
            num_samples=row["num_clusters"],
            **_same(row, *_SAME),
        )


def _said(row: Row, several: bool) -> str:
    ours, theirs = map(wording.named, Variant.pair(row))
    what, gap, unit = wording.measured(row, several), wording.gap(row), wording.unit(row)
    samples = f"{row['num_clusters']:,} independent sample{'s'[: row['num_clusters'] != 1]}"
    seeds = f"{row['num_seeds']} training seeds and " * (row["num_seeds"] > 1)
    mean = f"mean over {seeds}{samples}"
    evidence = f"{mean}; {formats.p_value(row['p_adjusted'], row['family'])}"
    detectable = ""
    if (limit := row["smallest_detectable"]) is not None:
        detectable = f"; smallest detectable difference: {formats.rounded(limit)}{unit}"
    found = wording.needed(row) if row["difference"] else ""
    needed = f"; {found} would decide (80 % power)" if found else ""
    if row["verdict"] == "better":
        here = "in this study, " if row["family"] == "exploratory" else ""
        run = " on this one training run" if row["generalises_to"] == "one training run" else ""
        why = row["explained_by"]
        return (
            f"{here}{ours} is better than {theirs}{run}: its {what} is {gap},"
            f" {evidence}{' (exploratory)' if here else ''}"
            f"{f'; the control prompts explain this ({why})' if why else ''}"
        )
    if row["verdict"] == "the same":
        return (
            f"{ours} and {theirs} are equal in {what}: the same score on each of"
            f" {samples}{detectable}"
        )
    if row["verdict"] == "too few":
        return (
            f"{samples} {'is' if row['num_clusters'] == 1 else 'are'} too few to compare {ours}"
            f" with {theirs}; on average over these, the {what} of {ours} is {gap}{needed}"
        )
    if row["blocked_by"] is not None:
        detectable = ""
        evidence = mean
        needed = f"; not tested, because expectation {row['blocked_by'] + 1} is undecided"
    return (
        f"undecided between {ours} and {theirs}: the {what} of {ours} is {gap},"
        f" {evidence}{detectable}{needed}"
    )


def _same(row: Row, *names: str) -> Row:
    return {name: row[name] for name in names}


def _with_more_tasks(rows: Sequence[Row], column: str) -> set[str]:
    found = grouped(rows, "benchmark")
    return {name for name, own in found.items() if len({row[column] for row in own}) > 1}
