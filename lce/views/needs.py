"""What a study needs: wall-clock time, disk and downloads, and how much work a kill can lose."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flows.plans.pricing import Price, Prices, slots_here, time_left
from lce_core import formats
from lce_core.benchmarks import BENCHMARKS
from lce_core.evaluation.long_cell import LONG_SECONDS
from lce_core.execution import Execution
from lce_core.hub import is_address
from lce_core.models import LanguageModel
from lce_core.store.artifacts import Store
from lce_core.store.steps import Step
from lce_core.study.cost import num_parameters
from lce_core.study.plan import StudyPlan
from lce_core.study.progress import StepState, needed_steps
from lce_core.study.spec import StudySpec
from lce_core.study.step_kinds import CellSpec, RowsSpec, TokensSpec, TrainingSpec, spec_of

_CELL_BYTES = 14_000
"""Record and samples of a cell: mean of 41 cells of passkey and RULER."""
_LOSSES_BYTES = 64 * 10**6
"""Most that a cell stores of its token losses, two bytes each."""
_TOKEN_BYTES = 4
"""Most that a token takes in training rows."""


@dataclass(frozen=True)
class Needs:
    """What the missing steps of a study need, including those whose input data is missing."""

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
    """Most that a kill loses of a training run: the time between two resume points."""
    lost_cell_seconds: float
    """Most that a kill loses of a cell: one part (`Benchmark.num_parts`), or the first minute."""
    text_passes: float | None
    """Number of times that the longest training run reads the text; None if its size is unknown."""


def needs_of(
    plan: StudyPlan,
    states: Mapping[str, StepState],
    execution: Execution,
    prices: Prices,
) -> Needs:
    plan, states = _with_expected(plan, states)
    needed = needed_steps(plan, states)
    steps = [step for name, step in plan.steps.items() if name in needed]
    cells = [step for step in steps if step.kind == CellSpec.kind]
    specs = {step.fingerprint: spec_of(step) for step in steps if step.kind != CellSpec.kind}
    trainings = [spec for spec in specs.values() if isinstance(spec, TrainingSpec)]
    rows = [spec for spec in specs.values() if isinstance(spec, RowsSpec)]
    missing = list(_models_to_download(plan, steps, execution))
    predicted = prices.predicted(steps, execution.training_processes)
    slots = slots_here(execution, prices.speed.device)
    at_once = execution.training_slots or max(1, slots // execution.training_processes)
    checkpoints = sum(spec.checkpoint_bytes for spec in trainings)
    points = sum(sorted((spec.resume_bytes for spec in trainings), reverse=True)[:at_once])
    others = sum(_cell_bytes(step, prices.of(step)) for step in cells)
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
            **{model.known_as: _download_bytes(model) for model in missing},
            **{name: None for name, place in execution.data_folders.items() if is_address(place)},
        },
        lost_training_seconds=min(longest, execution.checkpoint_seconds),
        lost_cell_seconds=max(
            (_lost_seconds(step, predicted[step.fingerprint].seconds) for step in cells),
            default=0.0,
        ),
        text_passes=_text_passes(plan.study, rows, execution),
    )


def needs_lines(
    plan: StudyPlan,
    states: Mapping[str, StepState],
    execution: Execution,
    prices: Prices,
) -> Iterator[str]:
    """Yield the lines of `lce plan` about `needs_of`; "~" marks an estimate without data."""
    needs = needs_of(plan, states, execution, prices)
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
    yield from (f"note: {note}" for note in plan.study.corpus.notes(execution.data_folders))


def _models_to_download(
    plan: StudyPlan, steps: Sequence[Step], execution: Execution
) -> Iterator[LanguageModel]:
    models, used = Store(execution.home).models, {step.axes.get("base_model") for step in steps}
    for model in plan.study.base_models:
        is_used = model.known_as in used or not model.is_known
        is_given = model.known_as in execution.model_folders
        if is_used and not is_given and model.needs_download(models):
            yield model


def _download_bytes(model: LanguageModel) -> int | None:
    return model.download_bytes or (2 * num_parameters(model) if model.is_known else None)


def _cell_bytes(step: Step, price: Price) -> int:
    losses = min(2 * price.cost.tokens, _LOSSES_BYTES)
    return _CELL_BYTES + losses * BENCHMARKS.load(step.axes["benchmark"]).scores_text


def _lost_seconds(step: Step, seconds: float) -> float:
    if seconds <= LONG_SECONDS:
        return seconds
    spec = spec_of(step)
    assert isinstance(spec, CellSpec)
    half = spec.evaluation.precision != "fp32"
    return max(LONG_SECONDS, seconds / spec.benchmark.num_parts(spec.task, half=half))


def _with_expected(
    plan: StudyPlan, states: Mapping[str, StepState]
) -> tuple[StudyPlan, Mapping[str, StepState]]:
    """Return the plan and states as if the missing input data were on this machine."""
    cells = tuple(replace(cell, step=cell.step or cell.expected) for cell in plan.cells)
    missing = dict.fromkeys(plan.expected, StepState("missing", "new"))
    whole = replace(plan, steps={**plan.expected, **plan.steps}, cells=cells)
    return whole, {**missing, **states}


def _text_passes(study: StudySpec, rows: Sequence[RowsSpec], execution: Execution) -> float | None:
    tokens = [spec.num_rows * spec.row_length for spec in rows if spec.digest is not None]
    num_bytes = study.corpus.num_bytes(execution.data_folders) if tokens else None
    return max(tokens) * study.base_models[0].bytes_per_token / num_bytes if num_bytes else None
