"""Look up in the store which steps of a study are done, and what the missing ones need.

`lce plan` and `lce status` print it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Any

from flows import selection
from flows.plans.pricing import Price, Prices, prices_of, slots_here, time_left
from flows.request import as_last_run, compile_request
from lce_core import formats
from lce_core.benchmarks import BENCHMARKS
from lce_core.errors import LceError
from lce_core.evaluation.long_cell import LONG_SECONDS
from lce_core.execution import Execution
from lce_core.hub import is_address
from lce_core.models import LanguageModel
from lce_core.store.artifacts import Store
from lce_core.store.failures import folders_of
from lce_core.store.lease import Holder, holders
from lce_core.store.steps import Step
from lce_core.study.cost import num_parameters
from lce_core.study.lock import ids_before
from lce_core.study.looks import without_settled
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.plan_diff import Orphan, compare
from lce_core.study.progress import Change, StepState, inspect, needed_steps
from lce_core.study.spec import StudySpec
from lce_core.study.step_kinds import CellSpec, RowsSpec, TokensSpec, TrainingSpec, spec_of

_CELL_BYTES = 14_000
"""Record and samples of a cell: mean of 41 cells of passkey and RULER."""
_LOSSES_BYTES = 64 * 10**6
"""Maximum size of a cell's token losses, of two bytes each."""
_PLACE = ("base_model", "benchmark", "profile", "task", "eval_length", "seed")
_TOKEN_BYTES = 4
"""Maximum size of a token in training rows."""


@dataclass(frozen=True)
class Inspection:
    """A study's plan, with the state of each of its steps in the store."""

    plan: StudyPlan
    states: dict[str, StepState]
    store: Store
    execution: Execution
    orphans: tuple[Orphan, ...] = ()
    """Artifacts of the study's earlier plans that this plan does not use."""

    def cell_state(self, cell: PlannedCell) -> StepState:
        """Return the state of a cell; "unavailable" if this machine cannot compute the cell."""
        if cell.step is None:
            return StepState("unavailable", cell.unavailable or "")
        return self.states[cell.step.fingerprint]

    def change_counts(self) -> Counter[Change]:
        return Counter(self.cell_state(cell).change for cell in self.plan.cells)

    def plugin_lines(self) -> list[str]:
        return selection.change_lines({name: self.states[name] for name in self.plan.steps})

    def again(self) -> Inspection:
        folders, plan = folders_of(self.execution.model_dump(mode="json")), self.plan
        if plan.study.looks:
            plan = without_settled(plan, self.store.studies.looks(plan.to_json()))
        return replace(self, plan=plan, states=inspect(plan, self.store, folders))

    def running(self) -> dict[str, Holder]:
        # Only missing steps: a step that has just finished may still hold its lease.
        steps = {step.id: step.fingerprint for step in self.to_do()}
        held = holders(self.store.home / "leases")
        return {steps[name]: who for name, who in held.items() if name in steps}

    def prices(self, device: str | None = None) -> Prices:
        return prices_of(self.plan, self.states, self.execution, device)

    def to_do(self) -> Iterator[Step]:
        """Yield the steps that a run would compute, parents before children."""
        needed = needed_steps(self.plan, self.states)
        return (step for name, step in self.plan.steps.items() if name in needed)

    def expected_only(self) -> Iterator[Step]:
        """Yield the steps that this machine cannot compute because it lacks their input data."""
        steps = self.plan.expected.items()
        return (step for fingerprint, step in steps if fingerprint not in self.plan.steps)

    def priced(self) -> Iterator[Step]:
        return chain(self.to_do(), self.expected_only())

    def beside_cells(self) -> list[Step]:
        cells = {cell.step.fingerprint for cell in self.plan.cells if cell.step}
        return [step for fingerprint, step in self.plan.steps.items() if fingerprint not in cells]


def inspect_study(
    study: str, execution: Execution, select: str = "", *, accept_plugin_change: bool = False
) -> Inspection:
    """Compile a study and look up its steps in the store.

    The only writes are cached digests of data files, and accepted plug-in changes.
    """
    study, execution = as_last_run(study, execution)
    plan = compile_request(study, execution).plan
    store = Store(execution.home)
    folders = folders_of(execution.model_dump(mode="json"))
    if accept_plugin_change:
        selection.check_plugin_changes(selection.select_cells(plan, select), execution, accept=True)
    states = inspect(plan, store, folders)
    states, orphans = compare(plan, store, states, ids_before(store, plan.study.study))
    for name in selection.models_to_fetch(plan, execution):
        for step in plan.steps.values():
            state = states[step.fingerprint]
            if step.axes.get("base_model") == name and state.state == "missing":
                fetch = selection.fetching(name)
                reason = f"{state.reason}; weights of {name} are missing: {fetch}"
                states[step.fingerprint] = replace(state, reason=reason)
    return Inspection(selection.select_cells(plan, select), states, store, execution, orphans)


def checked_prompts(found: Inspection) -> Iterator[dict[str, Any]]:
    """Build and check the prompts of each benchmark, task, length and seed of a plan.

    A row has the checks of `CellResult`, or the `error` that prevents them.
    """
    from lce_core import prompts

    built = set()
    for cell in found.plan.cells:
        seed = cell.step and cell.step.spec.get("seed")
        place = (cell.base_model, cell.benchmark, cell.profile, cell.task, cell.eval_length, seed)
        if cell.step is None or place in built:
            continue
        built.add(place)
        row = dict(zip(_PLACE, place, strict=True))
        try:
            checks = prompts.checked_prompts(found.store, cell.step, found.execution)
        except LceError as error:
            yield {**row, "error": str(error)}
        else:
            if checks:
                yield {**row, **checks}


def as_json(found: Inspection, device: str | None = None) -> dict[str, Any]:
    plan, prices = found.plan, found.prices(device)
    cells = []
    for cell, row in zip(plan.cells, plan.to_json()["cells"], strict=True):
        step = cell.step or cell.expected
        price = prices.of(step) if step else Price()
        cells.append({**row, **_stands(found.cell_state(cell)), **_json(price, prices)})
    shown = {cell.expected.fingerprint for cell in plan.cells if cell.expected}
    beside = [(step, found.states[step.fingerprint]) for step in found.beside_cells()]
    absent = StepState("unavailable", "its data is not on this machine")
    beside += [(s, absent) for s in found.expected_only() if s.fingerprint not in shown]
    steps = [
        {
            "kind": step.kind,
            "name": step.name,
            "fingerprint": None if state is absent else step.fingerprint,
            **_stands(state),
            **_json(prices.of(step), prices),
        }
        for step, state in beside
    ]
    return {
        "study": plan.study.study,
        "device": prices.speed.device,
        "speed": prices.speed.origin,
        "changes": {**found.change_counts(), "orphaned": len(found.orphans)},
        "corrected": prices.is_calibrated,
        "changed_plugins": found.plugin_lines(),
        **({"looks": list(looks)} if (looks := plan.study.looks) else {}),
        "match": plan.study.match,
        "to_do": _json(prices.total(found.to_do()), prices),
        "expected": _json(prices.total(found.expected_only()), prices),
        "whole": _json(prices.total(plan.steps.values()), prices),
        "needs": asdict(needs_of(found, prices)),
        "steps": steps,
        "cells": cells,
        "orphaned": [asdict(orphan) for orphan in found.orphans],
    }


def _stands(state: StepState) -> dict[str, Any]:
    return {
        "state": state.state,
        "change": state.change,
        "reason": state.reason,
        "differs": list(state.differs),
        "was": state.was,
    }


def _json(price: Price, prices: Prices) -> dict[str, Any]:
    return {
        "tokens": price.cost.tokens,
        "answer_tokens": price.cost.decoding.tokens,
        "flops": price.cost.all_flops,
        "gpu_hours": prices.gpu_seconds(price) / 3600,
        "hours": price.seconds / 3600,
        "estimated": price.estimated,
        **({} if price.error is None else {"error": price.error}),
    }


@dataclass(frozen=True)
class Needs:
    """Time, disk and downloads of a study's missing steps, even if input data is missing."""

    slots: int
    """Number of GPUs, or CPU workers, of the execution settings."""
    seconds: float
    """Wall-clock time on all slots."""
    disk_bytes: int
    """Size of what a run adds to the home, except token shards of a streamed corpus."""
    checkpoint_bytes: int
    """Size of all trained weights, a part of `disk_bytes`."""
    resume_bytes: int
    """Size of the resume points of the runs that train at once, a part of `disk_bytes`."""
    writes_shards: bool
    """True if a run stores a streamed corpus as token shards, whose size is unknown."""
    downloads: dict[str, int | None]
    """Size in bytes of base models and data sets that a run or `lce fetch` downloads; None if
    unknown."""
    lost_training_seconds: float
    """Maximum loss of a training run by a kill: the time between two resume points."""
    lost_cell_seconds: float
    """Maximum loss of a cell by a kill: one part (`Benchmark.num_parts`), or the first minute."""
    text_passes: float | None
    """Number of times that the longest training run reads the text; None if its size is unknown."""


def needs_of(found: Inspection, prices: Prices) -> Needs:
    execution = found.execution
    # As if the missing input data were on this machine.
    planned = tuple(replace(cell, step=cell.step or cell.expected) for cell in found.plan.cells)
    plan = replace(found.plan, steps={**found.plan.expected, **found.plan.steps}, cells=planned)
    states = {**dict.fromkeys(plan.expected, StepState("missing", "new")), **found.states}
    needed = needed_steps(plan, states)
    steps = [step for name, step in plan.steps.items() if name in needed]
    cells = [step for step in steps if step.kind == CellSpec.kind]
    specs = {step.fingerprint: spec_of(step) for step in steps if step.kind != CellSpec.kind}
    trainings = [spec for spec in specs.values() if isinstance(spec, TrainingSpec)]
    rows = [spec for spec in specs.values() if isinstance(spec, RowsSpec)]
    missing = list(_models_to_download(plan, steps, execution))
    predicted = prices.predicted(steps, execution.training_processes)
    slots = slots_here(execution, prices.speed.device)
    # A training run takes one slot of a CPU, and a GPU for each of its processes.
    most = (
        execution.slots if prices.speed.device == "cpu" else slots // execution.training_processes
    )
    at_once = execution.training_slots or max(1, most)
    checkpoints = sum(spec.checkpoint_bytes for spec in trainings)
    points = sum(sorted((spec.resume_bytes for spec in trainings), reverse=True)[:at_once])
    others = len(cells) * _CELL_BYTES
    others += sum(
        min(2 * prices.of(step).cost.tokens, _LOSSES_BYTES)
        * BENCHMARKS.load(step.axes["benchmark"]).scores_text
        for step in cells
    )
    others += sum(_TOKEN_BYTES * spec.num_rows * spec.row_length for spec in rows)
    others += sum(4 * num_parameters(model) for model in missing if model.is_fetched)
    longest = max((predicted[one].seconds for one in specs if specs[one] in trainings), default=0.0)
    return Needs(
        slots=slots,
        seconds=time_left(plan, states, prices, execution).seconds({}),
        disk_bytes=checkpoints + points + others,
        checkpoint_bytes=checkpoints,
        resume_bytes=points,
        writes_shards=any(isinstance(spec, TokensSpec) for spec in specs.values()),
        downloads={
            **{
                model.known_as: model.download_bytes
                or (2 * num_parameters(model) if model.is_known else None)
                for model in missing
            },
            **{name: None for name, place in execution.data_folders.items() if is_address(place)},
        },
        lost_training_seconds=min(longest, execution.checkpoint_seconds),
        lost_cell_seconds=max(
            (_lost_seconds(step, predicted[step.fingerprint].seconds) for step in cells),
            default=0.0,
        ),
        text_passes=_text_passes(plan.study, rows, execution),
    )


def needs_lines(found: Inspection, prices: Prices) -> Iterator[str]:
    """Yield the lines of `lce plan` about `needs_of`; "~" marks an estimate without data."""
    needs, plan = needs_of(found, prices), found.plan
    if not needs.disk_bytes:
        return
    is_estimated = bool(plan.expected)
    device = "CPU worker" if prices.speed.device == "cpu" else prices.speed.device.upper()
    yield (
        f"wall clock: {'~' * is_estimated}{formats.duration(needs.seconds)} on"
        f" {needs.slots} {device}{'s'[: needs.slots > 1]}"
    )
    parts = {"of it checkpoints": needs.checkpoint_bytes, "resume points": needs.resume_bytes}
    shown = [f"{name} {formats.size(size)}" for name, size in parts.items() if size]
    shown += ["and token shards of unknown size"] * needs.writes_shards
    yield ", ".join([f"disk: ~{formats.size(needs.disk_bytes)}", *shown])
    sizes = [
        f"{name} {'of unknown size' if size is None else f'~{formats.size(size)}'}"
        for name, size in needs.downloads.items()
    ]
    sizes += ["the data sets missing above, of unknown size"] * is_estimated
    if sizes:
        yield f"downloads: {', '.join(sizes)}"
    lost = {"a training run": needs.lost_training_seconds, "a cell": needs.lost_cell_seconds}
    times = [f"{formats.duration(one)} of {what}" for what, one in lost.items() if one]
    if times:
        yield f"a kill loses: at most {', '.join(times)}, on each slot"
    if needs.text_passes and needs.text_passes > 1:
        yield (
            f"warning: a training run reads the text about {needs.text_passes:,.0f} times, because"
            " the text has fewer tokens than the run. Give more text, or lower train_tokens."
        )
    yield from (f"note: {note}" for note in plan.study.corpus.notes(found.execution.data_folders))


def _models_to_download(
    plan: StudyPlan, steps: Sequence[Step], execution: Execution
) -> Iterator[LanguageModel]:
    models, used = Store(execution.home).models, {step.axes.get("base_model") for step in steps}
    for model in plan.study.base_models:
        is_used = model.known_as in used or not model.is_known
        is_given = model.known_as in execution.model_folders
        if is_used and not is_given and model.needs_download(models):
            yield model


def _lost_seconds(step: Step, seconds: float) -> float:
    if seconds <= LONG_SECONDS:
        return seconds
    spec = spec_of(step)
    assert isinstance(spec, CellSpec)
    half = spec.evaluation.precision != "fp32"
    return max(LONG_SECONDS, seconds / spec.benchmark.num_parts(spec.task, half=half))


def _text_passes(study: StudySpec, rows: Sequence[RowsSpec], execution: Execution) -> float | None:
    tokens = [spec.num_rows * spec.row_length for spec in rows if spec.digest is not None]
    num_bytes = study.corpus.num_bytes(execution.data_folders) if tokens else None
    return max(tokens) * study.base_models[0].bytes_per_token / num_bytes if num_bytes else None
