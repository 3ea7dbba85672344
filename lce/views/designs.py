"""`lce plan --power`: differences that other numbers of seeds and prompts detect, and their cost.

Columns are numbers of seeds, rows multiples of the planned prompts. The comparisons are those of
`expects` or, if there are none, every method with the base model.
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from flows.plans.pricing import GPU_HOURS_OF, Prices
from lce.views.plan_view import LONG_SECONDS
from lce.views.power import Comparison, Options, Test, planned_seeds, seed_dependent
from lce_core import formats
from lce_core.errors import SpecError
from lce_core.statistics.designs import detectable_difference
from lce_core.study.plan import StudyPlan
from lce_core.study.step_kinds import CellSpec
from lce_core.terminal import WIDTH

SEEDS, TIMES = (1, 2, 3, 5, 8), (1, 2, 4)
_SEARCHED = tuple(product((*range(1, 11), 12, 15, 20, 30), (1, 2, 4, 8, 16, 32, 64)))


@dataclass(frozen=True)
class Group:
    """Comparisons with equal tests."""

    test: Test
    texts: tuple[str, ...]
    lengths: tuple[int, ...]

    def detectable(self, num_seeds: int, times: int, ratio: float) -> float | None:
        test = self.test
        if times > test.most_times or test.design.missing(num_seeds, times, test.level):
            return None
        return detectable_difference(test.design, num_seeds, times, test.alpha, ratio)


class Costs:
    """Predicted cost of the whole study by number of seeds and multiple of prompts."""

    def __init__(self, plan: StudyPlan, prices: Prices) -> None:
        of_seed, num_seeds = seed_dependent(plan), planned_seeds(plan) or 1
        steps = {**plan.expected, **plan.steps}.values()
        self._parts = []
        for per_seed, is_cell in product((False, True), repeat=2):
            price = prices.total(
                one
                for one in steps
                if (one.fingerprint in of_seed) == per_seed
                and (one.kind == CellSpec.kind) == is_cell
            )
            amounts = price.cost.all_flops, price.seconds, prices.gpu_seconds(price)
            share = num_seeds if per_seed else 1
            self._parts.append((per_seed, is_cell, [one / share for one in amounts]))
        self._in_gpu_hours = prices.on_gpu or 3600 * self.of(num_seeds, 1)["hours"] > LONG_SECONDS
        gpu = prices.speed.device if prices.on_gpu else GPU_HOURS_OF
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
        cost = self.of(num_seeds, times)
        if self._in_gpu_hours:
            return formats.three_digits(cost["gpu_hours"])
        return formats.duration(3600 * cost["hours"])


def groups(comparisons: Iterable[Comparison]) -> list[Group]:
    found: dict[Test, tuple[dict[int, None], dict[str, None]]] = {}
    for one in comparisons:
        if one.test:
            lengths, texts = found.setdefault(one.test, ({}, {}))
            lengths[one.eval_length] = texts[one.text] = None
    return [
        Group(test, tuple(texts), tuple(sorted(lengths)))
        for test, (lengths, texts) in found.items()
    ]


def cheapest(group: Group, costs: Costs, target: float, ratio: float) -> tuple[int, int] | None:
    """Return seeds and multiple of prompts of the cheapest design that detects `target`.

    For trained methods, a design has at least two seeds. None if no searched design suffices.
    """
    fits = (
        (num_seeds, times)
        for num_seeds, times in _SEARCHED
        if (num_seeds > 1 or not group.test.is_trained)
        and (size := group.detectable(num_seeds, times, ratio)) is not None
        and size <= target
    )
    return min(fits, key=lambda one: costs.of(*one)["flops"], default=None)


def as_json(
    plan: StudyPlan, prices: Prices, options: Options, comparisons: Iterable[Comparison]
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
                "benchmark": one.test.benchmark,
                "lengths": one.lengths,
                "unit": one.test.unit,
                "num_independent": one.test.design.num_clusters,
                "is_trained": one.test.is_trained,
                "most_prompts": one.test.most_times if one.test.most_times < math.inf else None,
                "missing_data": one.test.assumed,
                "alpha": one.test.alpha,
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
            for one in groups(comparisons)
        ],
    }


def _targets(one: Group, options: Options) -> tuple[float, ...]:
    test = one.test
    own = () if test.margin is None or not test.design.is_share else (test.margin,)
    return own + options.targets.get(test.unit, ())


def lines(
    plan: StudyPlan, prices: Prices, options: Options, comparisons: Iterable[Comparison]
) -> Iterator[str]:
    costs, found = Costs(plan, prices), groups(comparisons)
    if found and not any(one.test.unit in options.targets for one in found):
        raise SpecError(
            "--detect",
            ", ".join(options.targets),
            f"a unit of this study's comparisons: {found[0].test.unit}",
            "give the difference in this unit",
        )
    yield from textwrap.wrap(
        "Other designs of the whole study: numbers of seeds (columns), multiples of the planned"
        " prompts (rows). Smallest differences detected with 80 % power; * on one run only",
        WIDTH,
    )
    yield _line("seeds", map(str, SEEDS))
    yield f"cost: {costs.unit}"
    yield from _rows(costs.shown)
    yield "cost: FLOPs"
    yield from _rows(lambda seeds, times: f"{costs.of(seeds, times)['flops']:.3g}")
    for one in found:
        yield from _group(one, costs, options)


def _group(one: Group, costs: Costs, options: Options) -> Iterator[str]:
    first, last = one.lengths[0], one.lengths[-1]
    at = f"{first} to {last}" if one.lengths[2:] else ", ".join(map(str, one.lengths))
    yield from textwrap.wrap(
        f"{one.test.benchmark} at {at} tokens, n = {one.test.design.num_clusters:,}; in"
        f" {one.test.unit}",
        WIDTH,
    )
    for line in _data_limits(one):
        yield from textwrap.wrap(line, WIDTH, initial_indent="  ", subsequent_indent="  ")
    for text in one.texts:
        yield from textwrap.wrap(text, WIDTH, initial_indent="  - ", subsequent_indent="    ")

    def size(num_seeds: int, times: int) -> str:
        if times > one.test.most_times:
            return "no data "
        found = one.detectable(num_seeds, times, options.ratio)
        star = "*" if num_seeds == 1 and one.test.is_trained else " "
        return "none " if found is None else f"{found:.3f}{star}"

    yield from _rows(size)
    for target in _targets(one, options):
        found = cheapest(one, costs, target, options.ratio)
        margin = " (margin)" if target == one.test.margin else ""
        yield f"  {target:g} {one.test.unit}{margin}: " + (
            f"{found[0]} seed{'s'[: found[0] > 1]}, prompts x{found[1]}, {costs.shown(*found)}"
            f" ({costs.of(*found)['flops']:.3g} FLOPs)"
            if found
            else f"no design with 30 seeds and prompts x{min(64, one.test.most_times):.3g} or less"
        )


def _data_limits(one: Group) -> Iterator[str]:
    test = one.test
    if test.is_limit:
        yield "n is a limit: the corpus, which is not read here, may have fewer documents"
    if test.assumed:
        yield (f"Not on this machine, so its published size is assumed: {', '.join(test.assumed)}")
    if test.most_times < _SEARCHED[-1][1]:
        yield f"Limited by data: at most {test.most_times:.3g} times the planned prompts exist"


def _rows(shown: Callable[[int, int], str]) -> Iterator[str]:
    for times in TIMES:
        yield _line(f"  prompts x{times}", (shown(seeds, times) for seeds in SEEDS))


def _line(head: str, values: Iterable[str]) -> str:
    return (f"{head:<14}" + "".join(f"{value:>12}" for value in values)).rstrip()
