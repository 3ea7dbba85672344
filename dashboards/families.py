"""The methods of a study: variants, families of them, and their scores in all report formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from catalog.palette import Look, looks
from dashboards.contents import Contents, Row, grouped, select
from lce_core.study.variants import CONTROL, variant_label

MOST_LINES = 6  # of a chart panel, so that readers can follow them
TITLES = {
    "interpolation": "Position interpolation",
    "base": "Change of base",
    "dynamic": "Dynamic scale",
    "approximate": "Approximate attention",
}
OTHERS = "Other methods"
NO_EXTENSION = "Base model"
"""Title of the controls: the base model without an extension method, frozen and fine-tuned."""


@dataclass(frozen=True)
class Variant:
    """A method with frozen or with tuned weights: one row in the tables of a study."""

    method: str
    frozen: bool

    @classmethod
    def of(cls, row: Row) -> Variant:
        return cls(row["method"], row["frozen"])

    @classmethod
    def pair(cls, row: Row) -> tuple[Variant, Variant]:
        """Return the variant of a catalog row and the one that the row compares it with."""
        return cls.of(row), cls(row["other_method"], row["other_frozen"])

    @property
    def label(self) -> str:
        return variant_label(self.method, self.frozen)

    @property
    def is_control(self) -> bool:
        return self.method == CONTROL


@dataclass(frozen=True)
class Family:
    """Methods that extend the context in the same way, such as by another RoPE base."""

    key: str
    title: str
    variants: tuple[Variant, ...]


def families(contents: Contents) -> list[Family]:
    return [one for one in groups(contents) if one.key != "control"]


def method_looks(overview: Sequence[Row], found: Sequence[Row]) -> dict[str, Look]:
    known = {row["method"]: row["family"] for row in found}
    return looks({row["method"]: known[row["method"]] for row in overview})


def groups(contents: Contents) -> list[Family]:
    """Group all variants: the controls, the families in the order of `TITLES`, and all others."""
    known = {Variant.of(row): row["family"] for row in contents.families}

    def key(one: Variant) -> str:
        return "control" if one.is_control else known[one] if known[one] in TITLES else "other"

    found = grouped(map(Variant.of, contents.overview), key)
    titles = {"control": NO_EXTENSION, **TITLES, "other": OTHERS}
    return [Family(key, titles[key], tuple(found[key])) for key in titles if key in found]


def ordered(contents: Contents) -> list[Variant]:
    return [one for group in groups(contents) for one in group.variants]


def duplicates(contents: Contents) -> dict[Variant, Variant]:
    """Return, for each variant that repeats an earlier one's scores, the first such variant."""
    order = [Variant.of(row) for row in contents.overview]
    found: dict[Variant, Variant] = {}
    for row in contents.duplicates:
        first, second = sorted(Variant.pair(row), key=order.index)
        found[second] = min(first, found.get(second, first), key=order.index)
    return found


def panels(found: Sequence[Family], shown: Sequence[Variant]) -> list[Family]:
    """Split families into chart panels of at most `MOST_LINES` of the `shown` variants.

    A larger family is split into its frozen and its tuned variants, and these, if needed, into
    groups of `MOST_LINES` in the study's order.
    """
    parts: list[Family] = []
    for family in found:
        members = [one for one in family.variants if one in shown]
        if len(members) <= MOST_LINES:
            parts.append(Family(family.key, family.title, tuple(members)))
            continue
        for frozen, name in ((True, "frozen"), (False, "tuned")):
            half = [one for one in members if one.frozen == frozen]
            for start in range(0, len(half), MOST_LINES):
                number = f" {start // MOST_LINES + 1}" if len(half) > MOST_LINES else ""
                some = tuple(half[start : start + MOST_LINES])
                parts.append(Family(family.key, f"{family.title}, {name}{number}", some))
    return [part for part in parts if part.variants]


MARKS = {"better": "\u25b2", "worse": "\u25bc"}
LEGEND = (
    f"{MARKS['better']} better, {MARKS['worse']} worse than the base model on the same prompts, by"
    " a paired test: p or q up to 0.05. No mark: undecided, the same, or too few prompts."
)
_PLACE = ("base_model", "method", "frozen", "benchmark", "task", "eval_length")

Place = tuple[Variant, str | None, int]
"""Variant, task (None in a mean over tasks) and length in tokens."""


def scores_of(contents: Contents, rows: Sequence[Row]) -> dict[Place, Row]:
    """Return the scores of one benchmark by place, with the `verdict` against the base model.

    The verdict is "better", "worse" or None (view `paired_difference`). The rows are those of
    `comparable` or of the query `scores`.
    """
    verdicts = {tuple(row[name] for name in _PLACE): row["verdict"] for row in contents.differences}
    found = {}
    for row in rows:
        benchmark = row["benchmark"].split("\n")[0]  # `comparable` appends the task after a newline
        there = select(contents.scores, benchmark=benchmark, eval_length=row["eval_length"])
        tasks = {one["task"] for one in there}
        # The verdict on the only task of a benchmark at a length also applies to its mean.
        task = row.get("task") or (tasks.pop() if len(tasks) == 1 else None)
        compared = {**row, "benchmark": benchmark, "task": task}
        verdict = verdicts.get(tuple(compared[name] for name in _PLACE))
        found[Variant.of(row), row.get("task"), row["eval_length"]] = {
            **row, "verdict": None if row["value"] is None else verdict
        }  # fmt: skip
    return found


def hole(score: Row) -> str:
    return f"{score['num_seeds']} of {score['num_planned']} seeds"


def comparable(benchmarks: Sequence[Row], scores: Sequence[Row]) -> list[Row]:
    """Return the means of each benchmark, or its scores by task if methods have different tasks.

    A mean over code and books cannot be compared with one over code alone. In rows by task, the
    column `benchmark` contains the benchmark's name, a newline and the task.
    """
    found: list[Row] = []
    for name, rows in grouped(benchmarks, "benchmark").items():
        sets = {(row["eval_length"], row["task_set"]) for row in rows}
        if len(sets) == len({length for length, _ in sets}):
            found += rows
        else:
            tasks = select(scores, benchmark=name)
            found += [{**row, "benchmark": f"{name}\n{row['task']}"} for row in tasks]
    return found


def benchmark_label(benchmark: str) -> str:
    return benchmark.replace("\n", ": ").replace("_", " ")


def base_context(study: Row) -> str:
    trained = study["trained_context"]
    parts = (f"{trained:,}-token context" if trained else None, study.get("base_note"))
    return ", ".join(part for part in parts if part)
