"""`lce plan --power`: the smallest differences between methods that a study can detect."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from lce_core.benchmarks import Benchmark
from lce_core.statistics.power import UNRELATED, detectable_effect, detectable_share
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.spec import BenchmarkEntry

HEADING = (
    "smallest differences between two methods that paired tests find in 4 of 5\n"
    f"studies: of accuracy, where they disagree on {UNRELATED:.0%} of the prompts; of losses, in\n"
    "standard deviations (sd) of the difference. `as one of N`: the first of N\n"
    "comparisons to be found, held against all of them (Holm)"
)
NAMED_TASKS = 2
CAVEAT = (
    "at best: where prompts share documents, or training seeds differ, they must be\n"
    "larger; where methods disagree less often, smaller ones do"
)


@dataclass(frozen=True)
class Visible:
    """The smallest difference between two methods that one benchmark can detect at one length.

    The score of a method is its mean over the benchmark's tasks.
    """

    benchmark: str
    profile: str
    eval_length: int
    tasks: tuple[str, ...]
    num_samples: int
    """Independent samples of all tasks and seeds together."""
    unit: str
    """"accuracy", or "sd": standard deviations of the difference between two methods."""
    difference: float | None
    """Smallest difference, in `unit`, that one comparison of two methods detects; None if none is.
    """
    num_comparisons: int
    """Number of tests when all other methods are compared with one, such as the base model."""
    difference_of_family: float | None
    """Smallest difference detectable at Holm's first and strictest step (alpha = 0.05 /
    num_comparisons); None if none is."""


def visible_differences(plan: StudyPlan) -> Iterator[Visible]:
    """Yield the smallest detectable difference for each benchmark and length, in study order.

    Yields nothing for a benchmark and length with a single method, or where every task is
    impossible. Only the methods and seeds of the plan's own cells count: a plan reduced by a
    selection or a budget can detect less than the whole study.
    """
    study = plan.study
    possible: dict[tuple[str, str, int], list[PlannedCell]] = {}
    for cell in plan.cells:
        if cell.step is not None or cell.expected is not None:
            key = (cell.benchmark, cell.profile, cell.eval_length)
            possible.setdefault(key, []).append(cell)
    for entry in study.benchmarks:
        own = {(one.label, not one.is_tuned) for one in study.methods if entry.evaluates(one)}
        name, profile = entry.benchmark.plugin_name, entry.benchmark.profile
        for length in entry.lengths:
            cells = possible.get((name, profile, length), [])
            asked = [cell for cell in cells if (cell.method, cell.frozen) in own]
            tasks = [task for task in entry.tasks if any(cell.task == task for cell in asked)]
            num_comparisons = len({(cell.method, cell.frozen) for cell in asked}) - 1
            seeds = len({cell.seed for cell in asked}) if entry.benchmark.seeded else 1
            counts = [
                seeds
                * _independent(entry.benchmark, task, length, study.evaluation.held_out_tokens)
                for task in tasks
            ]
            if num_comparisons > 0:
                yield _visible(
                    entry, length, dict(zip(tasks, counts, strict=True)), num_comparisons
                )


def as_json(plan: StudyPlan) -> list[dict[str, Any]]:
    return [asdict(one) for one in visible_differences(plan)]


def lines(plan: StudyPlan) -> Iterator[str]:
    """Yield a heading, one line for each benchmark and length, and a caveat."""
    yield HEADING
    for one in visible_differences(plan):
        number = len(one.tasks)
        tasks = f"{number} tasks" if number > NAMED_TASKS else ", ".join(one.tasks)
        alone, first = (_told(one, gap) for gap in (one.difference, one.difference_of_family))
        family = f"; {first} as one of {one.num_comparisons}" if one.num_comparisons > 1 else ""
        yield (
            f"{one.benchmark} {one.profile} {one.eval_length} ({tasks}; {one.num_samples:,}"
            f" samples): {alone}{family}"
        )
    yield CAVEAT


def _independent(benchmark: Benchmark, task: str, length: int, held_out_tokens: int) -> int:
    text = benchmark.text_tokens(task, held_out_tokens)
    return benchmark.num_independent(task, length, text)


def _visible(
    entry: BenchmarkEntry, length: int, counts: dict[str, int], num_comparisons: int
) -> Visible:
    is_share = entry.benchmark.unit == "accuracy"
    # The variance of a mean over k tasks with n_i samples is proportional to sum(1 / n_i) / k**2.
    # One sample of `worth` equally weighted values has the same variance.
    numbers = counts.values()
    worth = int(len(counts) ** 2 / sum(1 / one for one in numbers)) if all(numbers) else 0
    return Visible(
        entry.benchmark.plugin_name,
        entry.benchmark.profile,
        length,
        tuple(counts),
        sum(numbers),
        "accuracy" if is_share else "sd",
        _smallest(worth, is_share, 1),
        num_comparisons,
        _smallest(worth, is_share, num_comparisons),
    )


@cache
def _smallest(number: int, is_share: bool, family: int) -> float | None:
    if number < 2:
        return None
    alpha = 0.05 / family
    if is_share:
        return detectable_share(number, alpha=alpha)
    return detectable_effect(number, alpha=alpha)


def _told(one: Visible, difference: float | None) -> str:
    if difference is None:
        return "none at all"
    return f"{difference:.3f}" if one.unit == "accuracy" else f"{difference:.2f} sd"
