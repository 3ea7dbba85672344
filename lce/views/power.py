"""`lce plan --power`: which expectations a study of this size can decide, and how probably."""

from __future__ import annotations

import math
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from flows.terminal import wrapped
from lce_core.benchmarks import Benchmark, CellData
from lce_core.corpora import StreamedCorpus
from lce_core.data.tokenised import hash_key
from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.hub import is_address
from lce_core.models import LanguageModel
from lce_core.statistics.designs import Design
from lce_core.statistics.power import ALPHA, UNRELATED, look_levels
from lce_core.study.expectation import Expectation
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.spec import StudySpec
from lce_core.study.variants import CONTROL
from lce_core.terminal import WIDTH

Folders = Mapping[str, Path]
TARGETS = {"accuracy": (0.05, 0.1, 0.2), "sd": (0.2, 0.5, 1.0)}
FEWEST_RANKED = 3
"""Minimum number of methods for `predicts`, as in the view `expectations`."""
_TARGET = re.compile(r"(\d+(?:\.\d+)?) (accuracy|sd)")

Cells = Mapping[Any, Mapping[Any, Mapping[str, PlannedCell]]]
"""Planned cells by base model, benchmark and length, then by method, then by task."""


@dataclass(frozen=True)
class Options:
    """The variances that the user assumes, and the differences that the user wants to detect."""

    ratio: float = 1.0
    """See `Design.probability`; docs/statistics.md has rates of false differences for 0 to 3."""
    targets: Mapping[str, tuple[float, ...]] = field(default_factory=lambda: TARGETS)

    @staticmethod
    def of(detect: str | None, ratio: float) -> Options:
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
class Test:
    """A test of two methods, or of a rank correlation, at the size that the study gives it."""

    benchmark: str
    design: Design
    unit: str
    """"accuracy", or "sd": standard deviations of the differences between documents."""
    level: float
    alpha: float
    """Level of one of the entry's comparisons: `level` divided by their number."""
    margin: float | None = None
    most_times: float = math.inf
    """Largest multiple of the planned prompts for which the data has rows or documents."""
    assumed: tuple[str, ...] = ()
    """Data sets that are not on this machine and count with their published size."""
    is_limit: bool = False
    """True if the corpus may have fewer documents than `design` says, because it was not read."""
    is_trained: bool = False
    """True if a compared method is trained once per seed; `design` ignores it for `predicts`, which
    is tested over documents."""

    def undecidable(self, num_seeds: int) -> str | None:
        if not self.design.num_prompts:
            return "n is unknown"
        needed = self.design.missing(num_seeds, 1, self.level)
        return f"a test needs n = {needed}" if needed else None

    def effect(self, options: Options) -> float | None:
        if self.margin is not None and self.unit == "accuracy":
            return self.margin
        return max(options.targets.get(self.unit, ()), default=None)


@dataclass(frozen=True)
class Comparison:
    """A comparison of two methods at one length, from an entry of `expects`."""

    entry: int | None
    text: str
    eval_length: int
    test: Test | None
    """The planned test; None if `predicts` has too few methods."""


def planned_seeds(plan: StudyPlan) -> int:
    return len({cell.seed for cell in _possible(plan)})


def comparisons(plan: StudyPlan, folders: Folders = MappingProxyType({})) -> list[Comparison]:
    """Return the comparisons of `expects`, or by default those with the base model.

    Only cells in the plan count, so a plan reduced by --select or --budget has fewer.
    """
    study, sizes = plan.study, _Sizes(plan.study, folders)
    of_seed = seed_dependent(plan)
    entries = {
        (entry.benchmark.plugin_name, task, length, one.label, not one.is_tuned): entry.benchmark
        for entry in study.benchmarks
        for one in study.methods
        if entry.evaluates(one)
        for task, length in product(entry.tasks, entry.lengths)
    }
    cells: dict[Any, dict[Any, dict[str, PlannedCell]]] = {}
    for cell in _possible(plan):
        where = cell.base_model, cell.benchmark, cell.eval_length
        cells.setdefault(where, {}).setdefault((cell.method, cell.frozen), {})[cell.task] = cell
    expected = [*study.comparisons()]
    counts = Counter(map(_family, expected))
    variants = {one.name: (one.label, not one.is_tuned) for one in study.methods}
    # At the last look, which has all seeds. An earlier look may decide too, so probabilities are
    # lower bounds.
    last_level = look_levels(study.looks)[-1] if study.looks else ALPHA
    found = []
    for one in expected or _against_base(cells):
        where = one["base_model"], one["benchmark"], one["eval_length"]
        planned = cells.get(where, {})
        methods = _compared(one, planned, variants)
        own = [planned.get(method, {}) for method in methods]
        tasks = [task for task in own[0] if all(task in it for it in own)] if own else []
        if not tasks:
            continue
        benchmarks = {task: entries[where[1], task, where[2], *methods[0]] for task in tasks}
        benchmark = benchmarks[tasks[0]]
        level = last_level * (one.get("weight", 1.0) or _passed_on(study.expects, one))
        is_ranking = one["expected"] == "predicts"
        is_share = not is_ranking and not one.get("metric") and benchmark.unit == "accuracy"
        steps = [cell.step or cell.expected for it in own for cell in it.values()]
        is_trained = any(not of_seed.isdisjoint(step.parents.values()) for step in steps if step)
        by_seed = is_trained and not is_ranking
        base_model = next(base for base in study.base_models if base.known_as == where[0])
        numbers, most_times, is_limit = sizes.samples(benchmarks, base_model, where[2])
        assumed = {
            data.name
            for task, reader in benchmarks.items()
            for data in reader.reads(task)
            if not data.is_in(folders)
        }
        test = Test(
            benchmark.plugin_name,
            Design(sum(numbers), equal_weights(numbers), is_share, benchmark.seeded, by_seed),
            "accuracy" if is_share else "sd",
            level,
            level / (counts[_family(one)] or 1),
            one["margin"],
            most_times,
            tuple(sorted(assumed)),
            is_limit,
            is_trained,
        )
        is_known = not is_ranking or len(methods) >= FEWEST_RANKED
        text = one["text"].rstrip(".")
        found.append(Comparison(one["entry"], text, where[2], test if is_known else None))
    return found


def _passed_on(expects: Sequence[Expectation], one: Mapping[str, Any]) -> float:
    """Return the share with which an entry of weight 0 is tested if all before it are decided."""
    before = (it for it in expects[: one["entry"]] if it.base_model in (None, one["base_model"]))
    return sum(it.weight or 0.0 for it in before)


def as_json(found: Sequence[Comparison], num_seeds: int, options: Options) -> list[dict[str, Any]]:
    return [
        {
            "entry": own[0].entry,
            "text": own[0].text,
            "benchmark": next((one.test.benchmark for one in own if one.test), None),
            "lengths": [one.eval_length for one in own],
            "num_independent": [one.test and one.test.design.num_clusters for one in own],
            "alpha": next((one.test.alpha for one in own if one.test), None),
            "undecidable": _undecidable(own, num_seeds),
            "effect": effect,
            "probability": _least(own, num_seeds, effect, options) if effect else None,
            "one_training_run": _is_one_run(own, num_seeds),
        }
        for own in _by_entry(found)
        for effect in [_effect(own, options)]
    ]


def lines(found: Sequence[Comparison], num_seeds: int, options: Options) -> Iterator[str]:
    heading = (
        "Expectations. Each is tested if all before it are decided, at 0.05 (with `looks`, at the"
        " level of the last one; times its weight or, if this is 0, the weights before it) divided"
        " by its number of comparisons."
        if any(one.entry is not None for one in found)
        else "No `expects`: each method is compared with the base model at 0.05. The report"
        " corrects for all comparisons, and finds fewer differences."
    )
    yield from textwrap.wrap(
        f"{heading} n: independent documents or prompts of one seed. sd: standard deviation of a"
        f" difference between documents. Assumed: two methods disagree on {UNRELATED:.0%} of the"
        " prompts, and between training seeds their difference varies"
        f" {options.ratio:g} times as much as its standard error over one seed's prompts"
        " (--variance-ratio)",
        WIDTH,
    )
    for own in _by_entry(found):
        head = "- " if own[0].entry is None else f"{own[0].entry + 1}. "
        yield from wrapped(f"{head}{own[0].text}{_size(own)}: {_decision(own, num_seeds, options)}")


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


class _Sizes:
    """Independent samples of cells; the held-out text is read once, to count its documents."""

    def __init__(self, study: StudySpec, folders: Folders) -> None:
        self._study, self._folders = study, folders
        self._bytes: dict[str, list[int]] | None = None

    def samples(
        self, benchmarks: Mapping[str, Benchmark], base_model: LanguageModel, length: int
    ) -> tuple[list[int], float, bool]:
        counts, limits, is_limit = [], [math.inf], False
        for task, benchmark in benchmarks.items():
            text = benchmark.text_tokens(task, self._study.evaluation.held_out_tokens)
            number = benchmark.num_independent(task, length, text)
            available = benchmark.data_samples(CellData(base_model, task, length, self._folders))
            if domain := benchmark.held_out_domain(task):
                documents = self._documents(domain, base_model)
                is_limit = is_limit or documents is None
                if documents is not None:
                    available = len(documents)
                    grid = benchmark.window_grid(task, length)
                    number = min(number, _read(documents, text, length, grid[1] if grid else 1))
            counts.append(number if available is None else min(number, available))
            if available and counts[-1]:
                limits.append(available / counts[-1])
        return counts, min(limits), is_limit

    def _documents(self, domain: str, base_model: LanguageModel) -> list[float] | None:
        """Estimate the tokens of each held-out document of a domain, in the order of the stream.

        None if the corpus is streamed, because it may be large, or is not on this machine; a plan
        downloads nothing.
        """
        corpus = self._study.corpus
        if self._bytes is None:
            found: dict[str, list[tuple[int, int]]] = {}
            try:
                place = self._folders.get(getattr(corpus, "folder", ""))
                if not isinstance(corpus, StreamedCorpus) and not (place and is_address(place)):
                    for one in corpus.documents("held_out", self._folders):
                        size = hash_key(one.name), len(one.text.encode())
                        found.setdefault(one.domain, []).append(size)
            except (UnavailableError, DataError):
                found = {}
            self._bytes = {name: [size for _, size in sorted(own)] for name, own in found.items()}
        most = self._study.evaluation.held_out_document_tokens or math.inf
        sizes = [min(most, it / base_model.bytes_per_token) for it in self._bytes.get(domain, [])]
        return sizes or None


def _read(documents: Sequence[float], text: int, length: int, stride: int) -> int:
    """Return in how many documents a window starts that fits into the first `text` tokens."""
    ends = np.cumsum(documents)
    last = min(text, float(ends[-1])) - (length if stride > 1 else 1)
    return len(np.unique(np.searchsorted(ends, np.arange(0, last + 1, stride), side="right")))


def equal_weights(counts: Sequence[int]) -> int:
    """Return how many equally weighted samples give a mean over tasks with these samples each.

    The variance of a mean over k tasks with n_i samples is proportional to sum(1 / n_i) / k**2.
    """
    return int(len(counts) ** 2 / sum(1 / one for one in counts) + 1e-6) if all(counts) else 0


def _possible(plan: StudyPlan) -> list[PlannedCell]:
    return [cell for cell in plan.cells if cell.step is not None or cell.expected is not None]


def _family(one: Mapping[str, Any]) -> object:
    """Return the key of comparisons that share a level: an entry, or all with `predicts`."""
    return one["base_model"], one["expected"] == "predicts" or ("entry", one["entry"])


def _compared(
    one: Mapping[str, Any],
    planned: Mapping[Any, Mapping[str, PlannedCell]],
    variants: Mapping[str, tuple[str, bool]],
) -> list[tuple[str, bool]]:
    if one["expected"] != "predicts":
        return [(one["method"], one["frozen"]), (one["other_method"], one["other_frozen"])]
    if "among" in one:
        return [variants[name] for name in one["among"]]
    exact = [it for it, own in planned.items() if all(c.exact_attention for c in own.values())]
    return exact if len(exact) >= FEWEST_RANKED else [*planned]


def _against_base(cells: Cells) -> Iterator[dict[str, Any]]:
    for (base_model, benchmark, length), methods in cells.items():
        for method, frozen in methods:
            if (CONTROL, True) in methods and (method, frozen) != (CONTROL, True):
                yield {
                    "entry": None, "text": "Each method and the base model", "expected": "better",
                    "base_model": base_model, "benchmark": benchmark, "eval_length": length,
                    "method": method, "frozen": frozen, "margin": None,
                    "other_method": CONTROL, "other_frozen": True,
                }  # fmt: skip


def _by_entry(found: Iterable[Comparison]) -> Iterable[list[Comparison]]:
    groups: dict[Any, list[Comparison]] = {}
    for one in found:
        key = one.entry, one.text, one.test.benchmark if one.test and one.entry is None else None
        groups.setdefault(key, []).append(one)
    return groups.values()


def _size(own: Sequence[Comparison]) -> str:
    tests = [one.test for one in own if one.test]
    numbers = sorted({one.design.num_clusters for one in tests})
    lengths = ", ".join(map(str, sorted({one.eval_length for one in own})))
    most = "at most " if any(one.is_limit for one in tests) else ""
    many = f", {len(own)} comparisons" if len(own) > 1 else ""
    name = f"{tests[0].benchmark} " if tests else ""
    number = (
        f", n = {most}{' to '.join(f'{it:,}' for it in dict.fromkeys((numbers[0], numbers[-1])))}"
        if numbers
        else ""
    )
    return f" ({name}at {lengths}{many}{number})"


def _decision(own: Sequence[Comparison], num_seeds: int, options: Options) -> str:
    if why := _undecidable(own, num_seeds):
        return f"cannot be decided by this study: {why}"
    effect = _effect(own, options)
    if effect is None:
        return "has another unit than --detect"
    test = own[0].test
    assert test is not None
    least = _least(own, num_seeds, effect, options)
    shown = "> 0.99" if least > 0.99 else "< 0.01" if least < 0.01 else f"{least:.2f}"
    size = f"at {effect:g} {test.unit}"
    if test.margin is not None:
        size += " inside the margin"
    run = ", on one training run only" if _is_one_run(own, num_seeds) else ""
    return f"decided with probability {shown} {size}{run}"


def _undecidable(own: Sequence[Comparison], num_seeds: int) -> str | None:
    for one in own:
        if one.test is None:
            return f"fewer than {FEWEST_RANKED} methods at {one.eval_length} tokens"
        if why := one.test.undecidable(num_seeds):
            return why
    return None


def _effect(own: Sequence[Comparison], options: Options) -> float | None:
    return next((one.test.effect(options) for one in own if one.test), None)


def _least(own: Sequence[Comparison], num_seeds: int, effect: float, options: Options) -> float:
    if _undecidable(own, num_seeds):
        return 0.0
    return min(
        test.design.probability(num_seeds, 1, effect, test.alpha, options.ratio)
        for test in (one.test for one in own)
        if test
    )


def _is_one_run(own: Sequence[Comparison], num_seeds: int) -> bool:
    return num_seeds == 1 and any(one.test and one.test.is_trained for one in own)
