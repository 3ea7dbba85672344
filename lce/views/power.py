"""`lce plan --power`: the smallest differences between methods that a study can detect."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lce_core.benchmarks import Benchmark
from lce_core.models import LanguageModel
from lce_core.statistics.power import UNRELATED, detectable_effect, detectable_share
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.spec import BenchmarkEntry, StudySpec
from lce_core.terminal import WIDTH

Folders = Mapping[str, Path]
NO_FOLDERS: Folders = MappingProxyType({})
"""Folders of a machine without data sets, on which all of them count as published."""
HEADING = (
    "smallest difference between two methods that a paired test detects with 80 %\n"
    f"power: in accuracy, if methods disagree on {UNRELATED:.0%} of the prompts; in losses, in\n"
    "standard deviations (sd) of the difference. `as one of N`: at the first step\n"
    "of Holm's correction for N comparisons"
)
NAMED_TASKS = 2
"""Maximum number of tasks that are printed by name; with more tasks, only their number is."""
CAVEAT = (
    "these are lower limits: if prompts share documents, or training seeds differ,\n"
    "only larger differences are found; if methods disagree less often, smaller ones"
)


@dataclass(frozen=True)
class Visible:
    """Smallest difference between two methods that one benchmark can detect at one length.

    A method's score is its mean over the benchmark's tasks.
    """

    benchmark: str
    profile: str
    eval_length: int
    tasks: tuple[str, ...]
    num_samples: int
    """Number of independent samples, summed over tasks and seeds."""
    unit: str
    """"accuracy", or "sd": standard deviations of the difference between two methods."""
    difference: float | None
    """Smallest difference, in `unit`, that one test of two methods can detect; None if the samples
    are too few to detect any."""
    num_comparisons: int
    """Number of tests if one method, such as the base model, is compared with each other method."""
    difference_of_family: float | None
    """Smallest difference, in `unit`, that the first and strictest step of Holm's correction can
    detect (alpha = 0.05 / num_comparisons); None if the samples are too few to detect any."""


def visible_differences(plan: StudyPlan, folders: Folders = NO_FOLDERS) -> Iterator[Visible]:
    """Yield the smallest detectable difference for each benchmark and length, in study order.

    Skip a benchmark and length with only one method, or whose tasks are all unavailable. Only cells
    in the plan count, so a plan reduced by --select or --budget can detect less.

    Args:
      plan: the study's plan.
      folders: the user's folder of each data set.
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
            evaluated = [cell for cell in cells if (cell.method, cell.frozen) in own]
            tasks = [task for task in entry.tasks if any(cell.task == task for cell in evaluated)]
            num_comparisons = len({(cell.method, cell.frozen) for cell in evaluated}) - 1
            seeds = len({cell.seed for cell in evaluated}) if entry.benchmark.seeded else 1
            if num_comparisons > 0:
                base_model = model_named(study, evaluated[0].base_model)
                counts = [
                    seeds * independent(study, entry.benchmark, base_model, task, length, folders)
                    for task in tasks
                ]
                yield _visible(
                    entry, length, dict(zip(tasks, counts, strict=True)), num_comparisons
                )


def as_json(plan: StudyPlan, folders: Folders = NO_FOLDERS) -> list[dict[str, Any]]:
    return [asdict(one) for one in visible_differences(plan, folders)]


def lines(plan: StudyPlan, folders: Folders = NO_FOLDERS) -> Iterator[str]:
    """Yield a heading, what each benchmark detects at which lengths, and a caveat."""
    yield HEADING
    lengths: dict[tuple[str, str], list[int]] = {}
    for one in visible_differences(plan, folders):
        number = len(one.tasks)
        tasks = f"{number} tasks" if number > NAMED_TASKS else ", ".join(one.tasks)
        alone, first = (_shown(one, gap) for gap in (one.difference, one.difference_of_family))
        family = f"; {first} as one of {one.num_comparisons}" if one.num_comparisons > 1 else ""
        found = f"({tasks}; {one.num_samples:,} samples): {alone}{family}"
        lengths.setdefault((f"{one.benchmark} {one.profile}", found), []).append(one.eval_length)
    for (name, found), own in lengths.items():
        line = f"{name} {', '.join(map(str, own))} {found}"
        yield from textwrap.wrap(line, WIDTH, subsequent_indent="    ", break_on_hyphens=False)
    yield CAVEAT


def equal_weights(counts: Sequence[int]) -> int:
    """Return how many equally weighted samples give a mean over tasks with these samples each.

    The variance of a mean over k tasks with n_i samples is proportional to sum(1 / n_i) / k**2.
    """
    return int(len(counts) ** 2 / sum(1 / one for one in counts) + 1e-6) if all(counts) else 0


def independent(
    study: StudySpec,
    benchmark: Benchmark,
    base_model: LanguageModel,
    task: str,
    length: int,
    folders: Folders,
) -> int:
    """Return the independent samples of a cell: no more than its data set has."""
    text = benchmark.text_tokens(task, study.evaluation.held_out_tokens)
    number = benchmark.num_independent(task, length, text)
    available = benchmark.data_samples(base_model, task, length, folders)
    return number if available is None else min(number, available)


def model_named(study: StudySpec, name: str) -> LanguageModel:
    return next(model for model in study.base_models if model.known_as == name)


def _visible(
    entry: BenchmarkEntry, length: int, counts: dict[str, int], num_comparisons: int
) -> Visible:
    is_share = entry.benchmark.unit == "accuracy"
    numbers = counts.values()
    worth = equal_weights(list(numbers))
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


def _shown(one: Visible, difference: float | None) -> str:
    if difference is None:
        return "none at all"
    return f"{difference:.3f}" if one.unit == "accuracy" else f"{difference:.2f} sd"
