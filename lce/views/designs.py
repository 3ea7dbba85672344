"""`lce plan --power`: differences that other numbers of seeds and prompts detect, and their cost.

Columns are numbers of seeds, rows multiples of the planned prompts. The comparisons are those of
`expects` or, if there are none, every method with the base model.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from flows.plans.amounts import GPU_HOURS_OF, gpu_seconds
from flows.plans.pricing import Prices
from lce.views.plan_view import LONG_SECONDS
from lce.views.power import NO_FOLDERS, Folders, equal_weights, independent, model_named
from lce_core import formats
from lce_core.errors import SpecError
from lce_core.statistics.designs import Design, detectable_difference
from lce_core.statistics.power import ALPHA, detectable_tau, fewest
from lce_core.statistics.rank_agreement import FEWEST_METHODS
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.pricing.device_types import DEVICE_TYPES
from lce_core.study.step_kinds import CellSpec
from lce_core.study.variants import CONTROL
from lce_core.terminal import WIDTH

SEEDS, TIMES = (1, 2, 3, 5, 8), (1, 2, 4)
_SEARCHED = tuple(product((*range(1, 11), 12, 15, 20, 30), (1, 2, 4, 8, 16, 32, 64)))
"""Numbers of seeds and multiples of prompts among which the cheapest design is searched."""
_TARGETS = {"accuracy": (0.05, 0.1, 0.2), "sd": (0.2, 0.5, 0.8)}
"""Differences, by unit, for which the cheapest design is printed if the user names none."""
_TARGET = re.compile(r"(\d+(?:\.\d+)?) (accuracy|sd)")
_TAUS = (0.5, 0.7)
"""Correlations for which the number of methods is printed."""


@dataclass(frozen=True)
class Options:
    """The variances that the user assumes, and the differences that the user wants to detect."""

    ratio: float = 1.0
    """See `detectable_difference`. `docs/statistics.md` has the rates of false differences for
    ratios from 0 to 3."""
    targets: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: _TARGETS)

    @staticmethod
    def of(detect: str | None, ratio: float) -> Options:
        """Read the options of `lce plan`.

        Raises:
          SpecError: if `detect` is not a number with a unit, or the ratio is negative.
        """
        if not 0 <= ratio < 1e3:
            raise SpecError(
                "--variance-ratio", ratio, "a number from 0 to 1,000", "choose such a number"
            )
        if detect is None:
            return Options(ratio)
        found = _TARGET.fullmatch(detect.strip())
        if not found or not float(found[1]):
            raise SpecError(
                "--detect",
                detect,
                "a positive difference with its unit, accuracy or sd",
                'write, for example, --detect "0.05 accuracy"',
            )
        return Options(ratio, {found[2]: (float(found[1]),)})


@dataclass(frozen=True)
class Group:
    """Comparisons with the same benchmark and design."""

    texts: tuple[str, ...]
    """Claims or expectations to which the comparisons belong."""
    benchmark: str
    design: Design
    unit: str
    """"accuracy", or "sd": standard deviations of the differences between documents."""
    lengths: tuple[int, ...]
    alpha: float
    """Level of Holm's first and strictest step."""
    margin: float | None
    most_times: float
    """Largest multiple of the planned prompts for which the data sets have rows or documents."""
    assumed: tuple[str, ...]
    """Data sets that are not on this machine and count with their published size."""

    def detectable(self, num_seeds: int, times: int, ratio: float) -> float | None:
        """Return the difference that a design detects; None if none, or if it exceeds the data."""
        if times > self.most_times:
            return None
        return detectable_difference(self.design, num_seeds, times, self.alpha, ratio)


class Costs:
    """Predicted cost of the whole study by number of seeds and multiple of prompts."""

    def __init__(self, plan: StudyPlan, prices: Prices) -> None:
        of_seed, num_seeds = seed_dependent(plan), len(plan.study.seeds)
        steps = {**plan.expected, **plan.steps}.values()
        self._parts = []
        for per_seed, is_cell in product((False, True), repeat=2):
            price = prices.total(
                one
                for one in steps
                if (one.fingerprint in of_seed) == per_seed
                and (one.kind == CellSpec.kind) == is_cell
            )
            amounts = price.cost.all_flops, price.seconds, gpu_seconds(price, prices)
            share = num_seeds if per_seed else 1
            self._parts.append((per_seed, is_cell, [one / share for one in amounts]))
        on_gpu = prices.speed.device in DEVICE_TYPES
        self._in_gpu_hours = on_gpu or 3600 * self.of(num_seeds, 1)["hours"] > LONG_SECONDS
        gpu = prices.speed.device if on_gpu else GPU_HOURS_OF
        self.unit = f"{gpu.upper()}-hours" if self._in_gpu_hours else "time of one CPU worker"

    def of(self, num_seeds: int, times: int) -> dict[str, float]:
        """Return FLOPs, hours on the plan's device and GPU-hours."""
        flops, seconds, on_gpu = (
            sum(
                amounts[kind] * (num_seeds if per_seed else 1) * (times if is_cell else 1)
                for per_seed, is_cell, amounts in self._parts
            )
            for kind in range(3)
        )
        return {"flops": flops, "hours": seconds / 3600, "gpu_hours": on_gpu / 3600}

    def shown(self, num_seeds: int, times: int) -> str:
        """Format the time of a design, in `unit`."""
        cost = self.of(num_seeds, times)
        if self._in_gpu_hours:
            return formats.three_digits(cost["gpu_hours"])
        return formats.duration(3600 * cost["hours"])


def seed_dependent(plan: StudyPlan) -> set[str]:
    """Return the fingerprints of the steps that every seed computes anew."""
    steps = {**plan.expected, **plan.steps}
    known: dict[str, bool] = {}

    def depends(name: str) -> bool:
        if name not in known:
            step = steps[name]
            own = step.spec.get("seed") is not None
            known[name] = own or any(depends(one) for one in step.parents.values() if one in steps)
        return known[name]

    return {name for name in steps if depends(name)}


def groups(plan: StudyPlan, folders: Folders = NO_FOLDERS) -> Iterator[Group]:
    """Yield the comparisons of `expects`, or by default those with the base model.

    Args:
      plan: the study's plan.
      folders: the user's folder of each data set.
    """
    study, of_seed = plan.study, seed_dependent(plan)
    entries = {
        (entry.benchmark.plugin_name, task, length, one.label, not one.is_tuned): entry.benchmark
        for entry in study.benchmarks
        for one in study.methods
        if entry.evaluates(one)
        for task, length in product(entry.tasks, entry.lengths)
    }
    cells: dict[Any, dict[Any, dict[str, PlannedCell]]] = {}
    for cell in plan.cells:
        if (cell.step or cell.expected) and cell.seed == study.seeds[0]:
            where = cell.base_model, cell.benchmark, cell.eval_length
            own = cells.setdefault(where, {}).setdefault((cell.method, cell.frozen), {})
            own[cell.task] = cell
    pairs = [one for one in study.comparisons() if one["method"]] or [*_against_base(cells)]
    alpha = ALPHA * len(study.base_models) / max(1, len(pairs))
    found: dict[Any, tuple[dict[int, None], dict[str, None]]] = {}
    for one in pairs:
        where = one["base_model"], one["benchmark"], one["eval_length"]
        ours, theirs = (
            cells.get(where, {}).get((one[f"{side}method"], one[f"{side}frozen"]), {})
            for side in ("", "other_")
        )
        if not (tasks := [task for task in ours if task in theirs]):
            continue
        benchmark = entries[*where[1:2], tasks[0], where[2], one["method"], one["frozen"]]
        base_model = model_named(study, where[0])
        counts = [
            independent(study, benchmark, base_model, task, where[2], folders) for task in tasks
        ]
        limits = [
            available / number
            for task, number in zip(tasks, counts, strict=True)
            if (available := benchmark.data_samples(base_model, task, where[2], folders))
        ]
        assumed = sorted(
            {
                data.name
                for task in tasks
                for data in benchmark.reads(task)
                if not data.is_in(folders)
            }
        )
        trained = {name for name, own in cells[where].items() if _is_trained(own, of_seed)}
        design = Design(
            equal_weights(counts),
            benchmark.unit == "accuracy",
            benchmark.seeded,
            len(trained) if _is_trained(ours, of_seed) or _is_trained(theirs, of_seed) else 0,
        )
        data = min(limits, default=math.inf), tuple(assumed)
        key = (one["benchmark"], design, one["margin"], data)
        lengths, texts = found.setdefault(key, ({}, {}))
        lengths[one["eval_length"]] = None
        texts[one.get("claim") or one["text"]] = None
    for (name, design, margin, data), (lengths, texts) in found.items():
        unit = "accuracy" if design.is_share else "sd"
        yield Group(tuple(texts), name, design, unit, tuple(sorted(lengths)), alpha, margin, *data)


def _against_base(cells: Mapping[Any, Mapping[Any, object]]) -> Iterator[dict[str, Any]]:
    for (base_model, benchmark, length), methods in cells.items():
        for method, frozen in methods:
            if (CONTROL, True) in methods and (method, frozen) != (CONTROL, True):
                yield {
                    "text": "Each method and the base model", "base_model": base_model,
                    "benchmark": benchmark, "eval_length": length, "margin": None,
                    "method": method, "frozen": frozen,
                    "other_method": CONTROL, "other_frozen": True,
                }  # fmt: skip


def _is_trained(own: Mapping[str, PlannedCell], of_seed: set[str]) -> bool:
    steps = (cell.step or cell.expected for cell in own.values())
    return any(parent in of_seed for step in steps if step for parent in step.parents.values())


def cheapest(group: Group, costs: Costs, target: float, ratio: float) -> tuple[int, int] | None:
    """Return seeds and multiple of prompts of the cheapest design that detects `target`.

    For trained methods, a design has at least two seeds. None if no searched design suffices.
    """
    fits = (
        (num_seeds, times)
        for num_seeds, times in _SEARCHED
        if (num_seeds > 1 or not group.design.num_trained)
        and (size := group.detectable(num_seeds, times, ratio)) is not None
        and size <= target
    )
    return min(fits, key=lambda one: costs.of(*one)["flops"], default=None)


def rank_claims(plan: StudyPlan) -> Iterator[dict[str, Any]]:
    """Yield each expected rank agreement, with the number of methods and the detectable tau."""
    benchmarks = [entry.benchmark for entry in plan.study.benchmarks]
    texts = {one.plugin_name for one in benchmarks if one.unit == "perplexity"}
    for one in plan.study.comparisons():
        if one["expected"] != "predicts":
            continue
        where = one["base_model"], one["eval_length"]
        losses, scores = (
            {
                (cell.method, cell.frozen, cell.exact_attention)
                for cell in plan.cells
                if (cell.step or cell.expected)
                and (cell.base_model, cell.eval_length) == where
                and cell.benchmark in names
            }
            for names in (texts, {one["benchmark"]})
        )
        both = losses & scores
        exact = [one for one in both if one[2]]
        # As in the view `expectations`: exact attention decides if there are enough such methods.
        number = len(exact) if len(exact) >= FEWEST_METHODS else len(both)
        yield {
            "text": one.get("claim") or one["text"],
            "benchmark": one["benchmark"],
            "eval_length": one["eval_length"],
            "num_methods": number,
            "kendall": detectable_tau(number),
        }


def as_json(
    plan: StudyPlan, prices: Prices, options: Options, folders: Folders = NO_FOLDERS
) -> dict[str, Any]:
    costs, ratio = Costs(plan, prices), options.ratio
    return {
        "variance_ratio": ratio,
        "costs": [
            {"seeds": seeds, "prompts": times, **costs.of(seeds, times)}
            for seeds, times in product(SEEDS, TIMES)
        ],
        "comparisons": [
            {
                "texts": one.texts,
                "benchmark": one.benchmark,
                "lengths": one.lengths,
                "unit": one.unit,
                "num_prompts": one.design.num_prompts,
                "num_trained": one.design.num_trained,
                "most_prompts": one.most_times if one.most_times < math.inf else None,
                "missing_data": one.assumed,
                "alpha": one.alpha,
                "detectable": [
                    {"seeds": seeds, "prompts": times, "difference": found}
                    for seeds, times in product(SEEDS, TIMES)
                    for found in [one.detectable(seeds, times, ratio)]
                ],
                "cheapest": [
                    {"difference": target, "seeds": found[0], "prompts": found[1]}
                    if found
                    else {"difference": target}
                    for target in _targets(one, options)
                    for found in [cheapest(one, costs, target, ratio)]
                ],
            }
            for one in groups(plan, folders)
        ],
        "rank_correlations": [*rank_claims(plan)],
    }


def _targets(one: Group, options: Options) -> tuple[float, ...]:
    own = () if one.margin is None or not one.design.is_share else (one.margin,)
    return own + options.targets.get(one.unit, ())


def lines(
    plan: StudyPlan, prices: Prices, options: Options, folders: Folders = NO_FOLDERS
) -> Iterator[str]:
    """Yield the cost of each design, what it detects in each comparison, and the cheapest one.

    Raises:
      SpecError: if no comparison has the unit of the difference to detect.
    """
    costs, found = Costs(plan, prices), [*groups(plan, folders)]
    if found and not any(one.unit in options.targets for one in found):
        raise SpecError(
            "--detect",
            ", ".join(options.targets),
            f"a unit of this study's comparisons: {found[0].unit}",
            "give the difference in this unit",
        )
    yield from textwrap.wrap(
        "Other designs of the whole study: number of seeds (columns) and multiple of the planned"
        " prompts (rows). Smallest differences detected with 80 % power, at the first step of"
        " Holm's correction for"
        f" {round(ALPHA / found[0].alpha) if found else 0} comparisons. Assumed:"
        " between training seeds a difference varies"
        f" {options.ratio:g} times as much as its standard error over one seed's prompts"
        " (--variance-ratio). * one seed: for the weights of this training run only",
        WIDTH,
    )
    yield _line("seeds", map(str, SEEDS))
    yield f"cost: {costs.unit}"
    yield from _rows(costs.shown)
    yield "cost: FLOPs"
    yield from _rows(lambda seeds, times: f"{costs.of(seeds, times)['flops']:.3g}")
    for one in found:
        yield from _group(one, costs, options)
    for claim in rank_claims(plan):
        yield from _rank_lines(claim)


def _group(one: Group, costs: Costs, options: Options) -> Iterator[str]:
    first, last = one.lengths[0], one.lengths[-1]
    at = f"{first} to {last}" if one.lengths[2:] else ", ".join(map(str, one.lengths))
    yield from textwrap.wrap(
        f"{one.benchmark} at {at} tokens, {one.design.num_prompts:,} independent samples a seed; in"
        f" {one.unit}",
        WIDTH,
    )
    for line in _data_limits(one):
        yield from textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="  ")
    for text in one.texts:
        yield from textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")

    def size(num_seeds: int, times: int) -> str:
        if times > one.most_times:
            return "no data "
        found = one.detectable(num_seeds, times, options.ratio)
        star = "*" if num_seeds == 1 and one.design.num_trained else " "
        return "none " if found is None else f"{found:.3f}{star}"

    yield from _rows(size)
    for target in _targets(one, options):
        found = cheapest(one, costs, target, options.ratio)
        margin = " (margin)" if target == one.margin else ""
        yield f"  {target:g} {one.unit}{margin}: " + (
            f"{found[0]} seed{'s'[: found[0] > 1]}, prompts x{found[1]}, {costs.shown(*found)}"
            f" ({costs.of(*found)['flops']:.3g} FLOPs)"
            if found
            else f"no design with 30 seeds and prompts x{min(64, one.most_times):.3g} or less"
        )


def _data_limits(one: Group) -> Iterator[str]:
    if one.assumed:
        yield (f"Not on this machine, so its published size is assumed: {', '.join(one.assumed)}")
    if one.most_times < _SEARCHED[-1][1]:
        yield f"Limited by data: at most {one.most_times:.3g} times the planned prompts exist"


def _rank_lines(claim: Mapping[str, Any]) -> Iterator[str]:
    needed = ", ".join(f"{tau} needs {_methods_for(tau)} methods" for tau in _TAUS)
    limit = claim["kendall"]
    detects = "none" if limit is None else f"{limit:.2f} or more"
    yield from textwrap.wrap(
        f"{claim['text']} ({claim['benchmark']} at {claim['eval_length']} tokens): Kendall's tau"
        f" over {claim['num_methods']} methods; detectable: {detects}. More seeds"
        f" and prompts make scores more exact but do not replace methods; a tau of {needed}, from"
        " different families",
        WIDTH,
    )


def _methods_for(tau: float) -> int | None:
    return fewest(lambda number: (detectable_tau(number) or 1.0) <= tau, FEWEST_METHODS)


def _rows(shown: Callable[[int, int], str]) -> Iterator[str]:
    for times in TIMES:
        yield _line(f"  prompts x{times}", (shown(seeds, times) for seeds in SEEDS))


def _line(head: str, values: Iterable[str]) -> str:
    return (f"{head:<14}" + "".join(f"{value:>12}" for value in values)).rstrip()
