"""Output of `lce plan`: cells by state and predicted time for each method, reasons, and totals.

A price is the predicted cost of a step in tokens, FLOPs and time.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from flows.plans.pricing import Prices
from flows.terminal import Terminal, plain_table, wrapped
from lce.views.planning import Inspection, checked_prompts, needs_lines
from lce_core import formats
from lce_core.statistics.power import looks_in_words
from lce_core.store.steps import Step
from lce_core.study.cost import StepCost, pretraining_cost
from lce_core.study.plan import StudyPlan
from lce_core.study.plan_diff import in_short
from lce_core.study.progress import Change
from lce_core.study.step_kinds import CellSpec, FinetuneSpec
from lce_core.study.variants import variant_label, variant_name

SIGNS: dict[Change, str] = {
    "done": "=",
    "new": "+",
    "stale": "~",
    "failed": "!",
    "unavailable": "x",
}
"""Sign of each state of a cell. In `lce lock --check`, "~" and "+" also mean changed and new."""
ORPHANED = "-"
MOST_GROUPS = 12
LONG_SECONDS = 30 * 86400
"""30 days. If a study takes longer on one CPU, the output suggests --device-type for GPU times."""
_NAMED_VALUES = 3
_ORDER = "~!x+-"

Row = tuple[str, str]
"""Base model and method; a tuned method ends with " tuned"."""
Group = tuple[str, str, str]
"""Sign, kind of step and reason."""


def show(found: Inspection, *, every_cell: bool, device: str | None = None) -> None:
    console = Terminal()
    prices = found.prices(device)
    console.print(_table(found, prices))
    if (trained := training_table(found.plan)) is not None:
        console.print(trained)
    for base in found.plan.study.base_models:
        if base.note:
            console.print(f"{base.known_as}: {base.note}", markup=False, highlight=False)
    plugin_lines = (line for sentence in found.plugin_lines() for line in wrapped(sentence))
    for line in (*plugin_lines, *difference_lines(found), *_totals(found, prices)):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    if every_cell:
        for cell in found.plan.cells:
            state = found.cell_state(cell)
            where = f"s{cell.seed} {cell.benchmark} {cell.task} {cell.eval_length}"
            label = variant_name(cell.method, cell.frozen)
            line = f"{state.change:<11} {cell.base_model} {label} {where}  {state.reason}"
            console.print(line, markup=False, highlight=False, soft_wrap=True)


def difference_lines(found: Inspection) -> Iterator[str]:
    counts = found.change_counts()
    parts = [f"{SIGNS[change]} {counts[change]:,} {change}" for change in SIGNS if counts[change]]
    parts += [f"{ORPHANED} {len(found.orphans):,} orphaned artifacts"] * bool(found.orphans)
    yield from wrapped(f"cells: {', '.join(parts)}")
    by_size = sorted(
        _groups(found).items(), key=lambda group: (_ORDER.index(group[0][0]), -len(group[1]))
    )
    for (sign, kind, reason), axes in by_size[:MOST_GROUPS]:
        what = "cells" if kind == CellSpec.kind and len(axes) > 1 else kind
        head = f"{sign} {len(axes):,} {what} {_in_common(axes)}".rstrip()
        yield from wrapped(f"{head}: {reason}")
    if (more := len(by_size) - MOST_GROUPS) > 0:
        yield f"  and {more:,} other reasons; --json has all"


def _groups(found: Inspection) -> dict[Group, list[Mapping[str, Any]]]:
    """Group the axes (method, seed, ...) of steps by the reason of their state.

    Included are cells that are not done, unless their only reason is "new", other steps that are
    failed or that a run computes again, and orphaned artifacts.
    """
    groups: dict[Group, list[Mapping[str, Any]]] = {}

    def add(sign: str, kind: str, reason: str, axes: Mapping[str, Any]) -> None:
        groups.setdefault((sign, kind, reason.removeprefix("changed: ")), []).append(axes)

    for cell in found.plan.cells:
        state = found.cell_state(cell)
        if state.change != "done" and state.reason != "new":
            add(SIGNS[state.change], CellSpec.kind, state.reason, vars(cell))
    to_do = {step.fingerprint for step in found.to_do()}
    for step in found.beside_cells():
        state = found.states[step.fingerprint]
        if state.state == "failed" or (state.holds != "new" and step.fingerprint in to_do):
            add(SIGNS[state.change], step.kind, state.reason, step.axes)
    for orphan in found.orphans:
        add(ORPHANED, orphan.kind, in_short(orphan.differs), orphan.axes)
    return groups


def _in_common(axes: Sequence[Mapping[str, Any]]) -> str:
    parts = []
    for axis in ("method", "benchmark"):
        values = dict.fromkeys(str(one[axis]) for one in axes if one.get(axis))
        if 0 < len(values) <= _NAMED_VALUES:
            parts.append(", ".join(values))
    return " on ".join(parts)


def _table(found: Inspection, prices: Prices) -> Table:
    several = len(found.plan.study.base_models) > 1
    counts, steps = _by_method(found)
    states = [change for change in SIGNS if any(count[change] for count in counts.values())]
    names = ("base model", "method")[not several :]
    table = plain_table(names, (*states, "tokens", "time"))
    for row, count in counts.items():
        price = prices.total(steps.get(row, ()))
        numbers = (f"{count[state] or '-'}" for state in states)
        table.add_row(*row[not several :], *numbers, *prices.tokens_and_time(price))
    return table


def _by_method(found: Inspection) -> tuple[dict[Row, Counter[Change]], dict[Row, list[Step]]]:
    counts: dict[Row, Counter[Change]] = {}
    steps: dict[Row, list[Step]] = {}
    for cell in found.plan.cells:
        row = cell.base_model, variant_label(cell.method, cell.frozen)
        counts.setdefault(row, Counter())[found.cell_state(cell).change] += 1
    for step in found.priced():
        axes = step.axes
        if axes.get("method") is not None:
            frozen = step.kind != FinetuneSpec.kind and axes["frozen"]
            method = axes.get("chosen_for", axes["method"])  # trials count for their variant
            row = axes["base_model"], variant_label(method, frozen)
            steps.setdefault(row, []).append(step)
    return counts, steps


def _totals(found: Inspection, prices: Prices) -> Iterator[str]:
    to_do = prices.total(found.to_do())
    kinds = [
        ("to do, with training", to_do),
        ("input data missing here, estimated", prices.total(found.expected_only())),
    ]
    if to_do.seconds and any(state.state == "done" for state in found.states.values()):
        kinds.append(("whole study, done included", prices.total(found.plan.steps.values())))
    for name, price in kinds:
        if price.cost.tokens:
            tokens, _ = prices.tokens_and_time(price)
            flops = f"{price.cost.all_flops:.3g} FLOPs"
            yield f"{name}: {tokens} tokens, {flops}, {prices.time_of(price)}"
            if price.cost.decoding.bytes:
                answers = formats.count(price.cost.decoding.tokens)
                alone = StepCost(decoding=price.cost.decoding)
                seconds = prices.speed.evaluation.seconds(alone)
                # Calibration by finished steps corrects only the total, not the time of reading
                # prompts and the time of generating answers.
                time = "" if prices.is_calibrated else f", {prices.hours_of(seconds)}"
                line = f"  of that at most {answers} generated tokens{time}"
                yield f"{line}: finished answers stop earlier"
    if looks := found.plan.study.looks:
        yield f"looks at {looks_in_words(looks)}: a run stops computing settled methods, so"
        yield "  it costs at most what is shown"
    if len(found.plan.study.seeds) == 1 and any(not cell.frozen for cell in found.plan.cells):
        yield "one seed: results of trained methods hold for one training run only"
    study = found.plan.study
    models = [
        one.known_as for one in study.base_models if one.is_known and one.architecture.needs_begin
    ]
    names = {e.benchmark.plugin_name: None for e in study.benchmarks if e.benchmark.lacks_begin}
    if models and names:
        yield from wrapped(
            f"warning: {', '.join(names)} gives {', '.join(models)} windows without the"
            " beginning-of-text token, which this model needs. Set `begin: true` of these"
            " benchmarks, or use perplexity_documents."
        )
    yield f"time: of {prices.device_of(1)}"
    if prices.speed.device == "cpu" and prices.total(found.priced()).seconds > LONG_SECONDS:
        yield "      --device-type a100, h100 or h200 gives GPU-hours"
    for line in needs_lines(found, prices):
        yield from wrapped(line)


def prompt_lines(found: Inspection) -> Iterator[str]:
    """Yield what the checks of prompts find, named as in the catalog's view `prompt_checks`."""
    number, several = 0, len(found.plan.study.base_models) > 1
    places: dict[str, list[str]] = {}
    for row in checked_prompts(found):
        number += row.get("num_prompts", 0)
        faults = [
            f"{name} {value}"
            for name, value in row.items()
            if (name.startswith("num_") and name != "num_prompts" and value > 0)
            or (name == "begin_tokens_max" and value > 1)
        ]
        if problem := row.get("error", ", ".join(faults)):
            model = f"{row['base_model']} " * several
            seed = "" if row["seed"] is None else f" s{row['seed']}"
            where = f"{model}{row['benchmark']} {row['task']} {row['eval_length']}{seed}"
            places.setdefault(problem, []).append(where)
    for problem, (first, *others) in places.items():
        more = f" and {len(others):,} more" * bool(others)
        yield from wrapped(f"! prompts of {first}{more}: {problem}")
    yield f"prompts: {number:,} built and checked"


def training_table(plan: StudyPlan) -> Table | None:
    """Return a table of each tuned method's own training with one seed, without trials of `tune`.

    With `match: flops` the last column has the share of the budget; the rest is rounding to whole
    optimizer steps. With `match: tokens`, return None if all methods have equal costs.
    """
    study = plan.study
    found = {
        (cell.base_model, variant_label(cell.method, False)): (cell.train_tokens, cell.train_flops)
        for cell in plan.cells
        if cell.train_tokens is not None and cell.train_flops is not None
    }
    per_model = {(base_model, *cost) for (base_model, _), cost in found.items()}
    matched = study.match == "flops" and study.train_tokens is not None
    if not matched and len(per_model) == len({base_model for base_model, _ in found}):
        return None
    several = len(study.base_models) > 1
    texts = ("base model", "trained method")[not several :]
    table = plain_table(texts, ("training tokens", "FLOPs", *["of the budget"] * matched))
    budgets = {
        base.known_as: pretraining_cost(base, study.train_tokens or 0, study.target_context).flops
        for base in study.base_models
        if base.is_known
    }
    for row, (tokens, flops) in found.items():
        share = [f"{flops / budgets[row[0]]:.1%}".replace("%", " %")] * matched
        table.add_row(*row[not several :], formats.count(tokens), f"{flops:.3g}", *share)
    return table
