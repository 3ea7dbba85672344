"""What MLflow is told about a study, as plain data: no MLflow in here.

One run is one row of the study at one seed: (base model, method, frozen, seed). A benchmark task is
one metric whose step is the evaluated length, so that the charts draw score against length. All of
it follows from plan.json and the records: two stores with equal records give equal contents, and a
content's digest tells whether a run that is already there needs rewriting.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from lce_core.methods import METHODS
from lce_core.store.artifacts import Store
from lce_core.store.identity import fingerprint
from lce_core.store.records import Record
from lce_core.study.step_kinds import TrainingSpec

FORMAT = 1
"""Raised when the same records are to be shown differently: all runs are then rewritten."""

MAX_CURVE_POINTS = 300
"""Points kept of a training curve; more cannot be told apart in a chart."""


@dataclass(frozen=True)
class Metric:
    """One point of one metric."""

    key: str
    value: float
    timestamp: int
    """Milliseconds since the epoch: when the cell finished, never when it was logged."""
    step: int


@dataclass(frozen=True)
class RunContent:
    """Everything one MLflow run holds."""

    key: str
    """Unique in the study; the tag lce.run_key."""
    name: str
    start: int
    """Earliest start of its records, in milliseconds since the epoch."""
    end: int
    params: Mapping[str, str]
    metrics: tuple[Metric, ...]
    tags: Mapping[str, str]
    files: Mapping[str, str]
    """Artifacts: file name to text."""

    @cached_property
    def digest(self) -> str:
        """sha256 over all of it; equal digests mean equal runs."""
        return fingerprint({"format": FORMAT, **asdict(self)}, self.key)


@dataclass(frozen=True)
class _Found:
    """A planned step with its record."""

    planned: Mapping[str, Any]
    folder: Path
    record: Record


def read_plan(store: Store, study: str) -> dict[str, Any] | None:
    """The study's plan.json, or None if it was never planned."""
    try:
        content = (store.home / "studies" / study / "plan.json").read_bytes()
    except FileNotFoundError:
        return None
    plan: dict[str, Any] = json.loads(content)
    return plan


def run_contents(store: Store, plan: Mapping[str, Any]) -> list[RunContent]:
    """The runs of a study that have at least one finished cell, in the order of the plan."""
    trainings = {found.planned["checkpoint"]: found for found in _read(store, plan["trainings"])}
    rows: dict[tuple[Any, ...], list[Mapping[str, Any]]] = defaultdict(list)
    for cell in plan["cells"]:
        axes = ("base_model", "method", "frozen", "seed")
        rows[tuple(cell[axis] for axis in axes)].append(cell)
    contents = []
    for planned in rows.values():
        cells = list(_read(store, planned))
        if cells:
            training = trainings.get(cells[0].planned["checkpoint"])
            contents.append(_content(plan, planned, cells, training))
    return contents


def _read(store: Store, planned: Iterable[Mapping[str, Any]]) -> Iterable[_Found]:
    for step in planned:
        if step["folder"] is None:
            continue
        folder = store.home / "artifacts" / step["folder"]
        try:
            record = Record.read(folder)
        except (OSError, ValueError):
            continue
        sizes = ((folder / name, entry.bytes) for name, entry in record.files.items())
        if record.fingerprint == step["fingerprint"] and all(_has(*pair) for pair in sizes):
            yield _Found(step, folder, record)


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _content(
    plan: Mapping[str, Any],
    planned: Sequence[Mapping[str, Any]],
    cells: Sequence[_Found],
    training: _Found | None,
) -> RunContent:
    first = planned[0]
    steps = [*cells, training] if training else list(cells)
    row = f"{first['method']}{'' if first['frozen'] else '-tuned'}"
    key = f"{plan['study']}/{first['base_model']}/{row}/seed-{first['seed']}"
    metrics = [metric for cell in cells for metric in _scores(cell)]
    metrics += _at_target(plan["target_context"], planned, cells)
    if training:
        metrics += _curve(training)
    return RunContent(
        key=key,
        name=f"{row} seed {first['seed']}{_of_which_model(plan, first['base_model'])}",
        start=min(_milliseconds(step.record.started_at) for step in steps),
        end=max(_milliseconds(step.record.finished_at) for step in steps),
        params=_params(plan, cells[0], row),
        metrics=tuple(sorted(metrics, key=lambda metric: (metric.key, metric.step))),
        tags={
            "lce.study": plan["study"],
            "lce.run_key": key,
            "lce.cell_ids_digest": fingerprint(sorted(s.record.fingerprint for s in steps), key),
            "lce.git_sha": ", ".join(sorted({_commit(step.record) for step in steps})),
            "mlflow.note.content": _note(first, row, len(cells), len(planned)),
        },
        files=_files(cells, training),
    )


def _of_which_model(plan: Mapping[str, Any], base_model: str) -> str:
    # The UI cuts long names: the base model is said only where there is a choice.
    return f", {base_model}" if len(plan["base_contexts"]) > 1 else ""


def _params(plan: Mapping[str, Any], cell: _Found, row: str) -> dict[str, str]:
    planned, method = cell.planned, cell.record.spec.get("method", {})
    values = {
        "row": row,
        "method": planned["method"],
        "frozen": planned["frozen"],
        "base_model": planned["base_model"],
        "seed": planned["seed"],
        # Plans of earlier versions had one target for all methods.
        "target_context": planned.get("target_context", plan["target_context"]),
        "trained_context": plan["base_contexts"].get(planned["base_model"]),
        "train_length": planned["train_length"],
        "exact_attention": planned["exact_attention"],
        "family": _family(str(method.get("name", planned["method"]))),
        "kernel": cell.record.result.get("kernel"),
    }
    settings = {k: v for k, v in method.items() if k not in ("name", "version")}
    values |= {f"method.{key}": value for key, value in settings.items()}
    return {key: _text(value) for key, value in values.items() if value is not None}


def _family(method: str) -> str | None:
    # A method of somebody's own folder may not be installed here: the run is still shown.
    return METHODS.load(method).family if method in METHODS.names() else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _scores(cell: _Found) -> Iterable[Metric]:
    result, planned = cell.record.result, cell.planned
    key, when = f"{planned['benchmark']}/{planned['task']}", _milliseconds(cell.record.finished_at)
    for score in result["scores"]:
        default = score["metric"] == result["default_metric"]
        name = key if default else f"{key}.{score['metric']}"
        yield Metric(name, score["value"], when, planned["eval_length"])


def _at_target(
    target: int, planned: Sequence[Mapping[str, Any]], cells: Sequence[_Found]
) -> Iterable[Metric]:
    """One scalar a benchmark: its tasks' mean at the target context, once all of them are there."""
    expected = Counter(cell["benchmark"] for cell in planned if cell["eval_length"] == target)
    for benchmark, number in expected.items():
        axes = {"benchmark": benchmark, "eval_length": target}
        group = [cell.record for cell in cells if axes.items() <= cell.planned.items()]
        if len(group) == number:
            when = max(_milliseconds(record.finished_at) for record in group)
            mean = math.fsum(_default_value(record) for record in group) / number
            yield Metric(f"summary/{benchmark}_at_target", mean, when, target)


def _default_value(record: Record) -> float:
    scores = {score["metric"]: float(score["value"]) for score in record.result["scores"]}
    return scores[record.result["default_metric"]]


def _curve(training: _Found) -> Iterable[Metric]:
    """The loss by optimizer step, thinned evenly, its first and last points kept."""
    lines = (training.folder / "loss.jsonl").read_text(encoding="utf-8").splitlines()
    stride = max(1, math.ceil(len(lines) / MAX_CURVE_POINTS))
    kept = sorted({*range(0, len(lines), stride), len(lines) - 1}) if lines else []
    when = _milliseconds(training.record.finished_at)
    name = TrainingSpec.curve_of(training.record.kind)
    for row in (json.loads(lines[index]) for index in kept):
        yield Metric(name, row["loss"], when, row["step"])


def _note(first: Mapping[str, Any], row: str, done: int, planned: int) -> str:
    weights = "the base model's weights" if first["frozen"] else "weights fine-tuned with it"
    return (
        f"**{row}** on {first['base_model']}, seed {first['seed']}: {weights}, last trained at"
        f" {first['train_length']} tokens of context. {done} of {planned} cells are done. A metric"
        " is `benchmark/task`; its step is the evaluated length in tokens."
    )


def _commit(record: Record) -> str:
    git = record.environment.get("git", {})
    return f"{git.get('commit') or 'unknown'}{'-dirty' if git.get('dirty') else ''}"


def _files(cells: Sequence[_Found], training: _Found | None) -> dict[str, str]:
    files = {"cells.json": [cell.record.model_dump(mode="json") for cell in cells]}
    if training:
        files["training.json"] = [training.record.model_dump(mode="json")]
    return {name: json.dumps(value, indent=1, sort_keys=True) for name, value in files.items()}


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
