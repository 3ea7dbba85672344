"""Build the MLflow runs of a study: for each table row, a run with means and one per seed.

A table row is a base model with a method, frozen or tuned. The step of a metric's point is the
evaluated length, so charts draw score against length. The content of a run is plain data, without
MLflow. It depends only on plan.json and the records, so stores with equal records have runs with
equal content. A run whose digest has changed is written again.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from catalog.mlflow_pages import run_key
from catalog.palette import family_of, looks
from lce_core.methods import METHODS
from lce_core.store.artifacts import Store
from lce_core.store.identity import fingerprint
from lce_core.store.records import Record
from lce_core.store.steps import Listing
from lce_core.study.step_kinds import TrainingSpec
from lce_core.study.variants import CONTROL, variant_name
from lce_core.training.loss_log import LOG, read_entries

MAX_DATASET_DIGEST = 36
"""MLflow's limit in characters."""
FORMAT = 4
"""Part of every digest; an increase rewrites all runs of all stores."""
RUN_KEY = "lce.run_key"
"""Tag that identifies a run in its study; MLflow's own run id changes when it is rewritten."""
NOTE = "mlflow.note.content"
"""Tag with the UI's description of an experiment or run."""
COLOUR = "mlflow.runColor"
"""Tag with the colour of a run's line."""
KIND = "lce.kind"
"""Tag of a run written from the store: METHOD or SEED."""
METHOD = "method"
"""A table row's means over seeds, the parent of its SEED runs."""
SEED = "seed"
"""A table row's scores at one seed."""
EXPORT = "export"
"""A model that a user registered; writing the study again keeps it."""
INTERVAL = "seed_interval"
"""`seed_interval/NAME` is half the width of the 95 % interval of the metric NAME."""
MEANS = "means.csv"
"""CSV file of every mean, its interval and its number of seeds."""
MAX_CURVE_POINTS = 300
"""Maximum points of a loss curve; a chart cannot show more."""
MAX_TELEMETRY_POINTS = 50
"""Maximum points of a telemetry metric."""
TELEMETRY = ("grad_norm", "learning_rate", "tokens_per_second", "mfu", "peak_memory_bytes")
"""Keys of a training log's entries that become metrics in addition to the loss."""


@dataclass(frozen=True)
class MetricPoint:
    """One point of one metric."""

    key: str
    value: float
    timestamp: int
    """Time at which the cell finished (not was logged), in milliseconds since the epoch."""
    step: int


@dataclass(frozen=True)
class DatasetInput:
    """One data set that a run read."""

    name: str
    context: str
    """"training" or "evaluation"."""
    digest: str
    """Cut to `MAX_DATASET_DIGEST` characters."""
    source: str
    """JSON object that names the corpus or data set and its parameters."""


@dataclass(frozen=True)
class RunContent:
    """The complete content of one MLflow run."""

    key: str
    """Value of the tag `RUN_KEY`."""
    parent: str | None
    """Key of the run under which the UI folds this one."""
    name: str
    start: int
    """Earliest start of the run's records, in milliseconds since the epoch."""
    end: int
    params: Mapping[str, str]
    metrics: tuple[MetricPoint, ...]
    tags: Mapping[str, str]
    datasets: tuple[DatasetInput, ...]
    files: Mapping[str, str]
    """Content by file name."""

    @cached_property
    def digest(self) -> str:
        return fingerprint({"format": FORMAT, **asdict(self)}, self.key)


@dataclass(frozen=True)
class FinishedStep:
    """A step of plan.json whose artifact exists."""

    planned: Mapping[str, Any]
    folder: Path
    record: Record


def read_plan(store: Store, study: str) -> dict[str, Any] | None:
    """Return the study's plan.json; None if the study was never planned or the file is invalid."""
    try:
        return store.studies.plan(study)
    except (OSError, ValueError):
        return None


def run_contents(store: Store, plan: Mapping[str, Any]) -> list[RunContent]:
    """Return the MLflow runs of all table rows with a finished cell, in the plan's order.

    A row's run with means precedes the runs of its seeds, because it is their parent.
    """
    listing = store.listing()
    trained = _read(store, listing, plan["trainings"])
    trainings = {found.planned["checkpoint"]: found for found in trained}
    rows: dict[tuple[Any, ...], dict[int, list[Mapping[str, Any]]]] = defaultdict(dict)
    for cell in plan["cells"]:
        if cell.get("settled"):
            continue
        axes = tuple(cell[axis] for axis in ("base_model", "method", "frozen"))
        rows[axes].setdefault(cell["seed"], []).append(cell)
    contents = []
    # Looks as in the report; MLflow would repeat one of 20 colours.
    names = {cell["method"]: cell["method_name"] for cell in plan["cells"]}
    colours = looks(
        {one: "none" if name == CONTROL else family_of(name) for one, name in names.items()}
    )
    for (_, method, frozen), by_seed in rows.items():
        seeds, colour = [], colours[method].dark if frozen else colours[method].light
        for planned in by_seed.values():
            cells = list(_read(store, listing, planned))
            if cells:
                training = trainings.get(cells[0].planned["checkpoint"])
                seeds.append(_seed_content(plan, planned, cells, training, colour))
        if seeds:
            contents += [_method_content(plan, by_seed, seeds, colour), *seeds]
    return contents


def _read(
    store: Store, listing: Listing, planned: Iterable[Mapping[str, Any]]
) -> Iterable[FinishedStep]:
    for step in planned:
        if step["folder"] is None:
            continue
        folder = store.artifact(step["folder"], listing)
        record = Record.find(folder)
        if record and record.fingerprint == step["fingerprint"] and not record.fault_in(folder):
            yield FinishedStep(step, folder, record)


def _method_content(
    plan: Mapping[str, Any],
    planned: Mapping[int, Sequence[Mapping[str, Any]]],
    seeds: Sequence[RunContent],
    colour: str,
) -> RunContent:
    """Return the MLflow run with a table row's means over `seeds`, at least one.

    As in the catalog, a mean exists only if every planned seed has a value.
    """
    first = next(iter(planned.values()))[0]
    row, key = variant_name(first["method"], first["frozen"]), _key_of(plan, first)
    results: dict[str, dict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
    for number, cells in planned.items():
        for cell in cells:
            for name in (cell["benchmark"], at_target_name(cell["benchmark"])):
                results[name][number].add(cell["fingerprint"])
    groups: dict[tuple[str, int], list[MetricPoint]] = defaultdict(list)
    for seed in seeds:
        for metric in seed.metrics:
            groups[metric.key, metric.step].append(metric)
    complete = {at: group for at, group in groups.items() if len(group) == len(planned)}
    metrics, lines = [], ["metric,step,mean,low,high,seeds\n"]
    for (name, step), group in sorted(complete.items()):
        when = max(metric.timestamp for metric in group)
        values = [metric.value for metric in group]
        mean = math.fsum(values) / len(values)
        metrics.append(MetricPoint(name, mean, when, step))
        scored = results.get(name) or results.get(name.partition("/")[0])
        if scored is None:
            continue
        # Seeds with the same cells share one result: count it as one run, as the catalog does.
        runs = {frozenset(ids): value for ids, value in zip(scored.values(), values, strict=True)}
        half = _half_width([*runs.values()])
        low, high = ("", "") if half is None else (mean - half, mean + half)
        lines.append(f'"{name}",{step},{mean},{low},{high},{len(values)}\n')
        if half is not None:
            metrics.append(MetricPoint(f"{INTERVAL}/{name}", half, when, step))
    return RunContent(
        key=key,
        parent=None,
        name=f"{row}{_model_suffix(plan, first['base_model'])}",
        start=min(seed.start for seed in seeds),
        end=max(seed.end for seed in seeds),
        params={**dict(_shared(seeds)), "seeds": ", ".join(map(str, planned))},
        metrics=tuple(sorted(metrics, key=lambda metric: (metric.key, metric.step))),
        tags={
            KIND: METHOD,
            "lce.study": plan["study"],
            RUN_KEY: key,
            COLOUR: colour,
            NOTE: _method_note(row, first, len(seeds), len(planned)),
        },
        datasets=tuple(dict.fromkeys(one for seed in seeds for one in seed.datasets)),
        files={MEANS: "".join(lines)},
    )


def _shared(seeds: Sequence[RunContent]) -> Iterator[tuple[str, str]]:
    for key, value in seeds[0].params.items():
        if key != "seed" and all(seed.params.get(key) == value for seed in seeds):
            yield key, value


def _half_width(values: Sequence[float]) -> float | None:
    """Return the half width of the mean's 95 % interval over seeds; None with one value."""
    if len(values) == 1:
        return None
    from lce_core.statistics.clustered import mean_over_seeds  # loads scipy, which takes a second

    found = mean_over_seeds([[value] for value in values], same_prompts=False)
    assert found.high is not None
    return found.high - found.value


def _method_note(row: str, first: Mapping[str, Any], num_started: int, planned: int) -> str:
    seeds = "1 seed" if planned == 1 else f"{planned} seeds"
    missing = f" So far {num_started} of them have finished cells." if num_started < planned else ""
    return (
        f"**{row}** on {first['base_model']}: mean over {seeds}. The runs of the seeds are folded"
        f" below this run. A point is drawn where every seed has a value.{missing} A metric is"
        " `benchmark/task`; its step is the evaluated length in tokens."
        f" `{INTERVAL}/METRIC` is half the width of the metric's 95 % confidence interval over"
        f" seeds; {MEANS} lists the bounds."
    )


def _seed_content(
    plan: Mapping[str, Any],
    planned: Sequence[Mapping[str, Any]],
    cells: Sequence[FinishedStep],
    training: FinishedStep | None,
    colour: str,
) -> RunContent:
    """Return the MLflow run with a table row's scores at one seed.

    `planned` are all cells of the row at this seed, `cells` the finished ones, at least one.
    """
    first = planned[0]
    steps = [*cells, training] if training else list(cells)
    row, key = variant_name(first["method"], first["frozen"]), _key_of(plan, first, first["seed"])
    metrics = [metric for cell in cells for metric in _scores(cell)]
    metrics += _at_target(plan["target_context"], planned, cells)
    if training:
        metrics += _curve(training)
    return RunContent(
        key=key,
        parent=_key_of(plan, first),
        name=f"{row} seed {first['seed']}{_model_suffix(plan, first['base_model'])}",
        start=min(_milliseconds(step.record.started_at) for step in steps),
        end=max(_milliseconds(step.record.finished_at) for step in steps),
        params=_params(plan, cells[0], row),
        metrics=tuple(sorted(metrics, key=lambda metric: (metric.key, metric.step))),
        tags={
            KIND: SEED,
            "lce.study": plan["study"],
            RUN_KEY: key,
            "lce.cell_ids_digest": fingerprint(sorted(s.record.fingerprint for s in steps), key),
            "lce.git_sha": ", ".join(sorted({_commit(step.record) for step in steps})),
            COLOUR: colour,
            NOTE: _seed_note(first, row, len(cells), len(planned)),
        },
        datasets=_datasets(steps),
        files=_files(cells, training),
    )


def _key_of(plan: Mapping[str, Any], cell: Mapping[str, Any], seed: int | None = None) -> str:
    return run_key(plan["study"], cell["base_model"], cell["method"], cell["frozen"], seed)


def _model_suffix(plan: Mapping[str, Any], base_model: str) -> str:
    # The UI truncates long names, so name the base model only if the study has several.
    return f", {base_model}" if len(plan["base_contexts"]) > 1 else ""


def _params(plan: Mapping[str, Any], cell: FinishedStep, row: str) -> dict[str, str]:
    planned, method = cell.planned, cell.record.spec.get("method", {})
    values = {
        "row": row,
        "method": planned["method"],
        "frozen": planned["frozen"],
        "base_model": planned["base_model"],
        "seed": planned["seed"],
        "target_context": planned["target_context"],
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
    # A user's own method may not be installed here. The run is then shown without a family.
    return METHODS.load(method).family if method in METHODS.names() else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _scores(cell: FinishedStep) -> Iterable[MetricPoint]:
    result, planned = cell.record.result, cell.planned
    key, when = f"{planned['benchmark']}/{planned['task']}", _milliseconds(cell.record.finished_at)
    for score in result["scores"]:
        default = score["metric"] == result["default_metric"]
        name = key if default else f"{key}.{score['metric']}"
        yield MetricPoint(name, score["value"], when, planned["eval_length"])


def at_target_name(benchmark: str) -> str:
    return f"summary/{benchmark}_at_target"


def _at_target(
    target: int, planned: Sequence[Mapping[str, Any]], cells: Sequence[FinishedStep]
) -> Iterable[MetricPoint]:
    """Yield the mean over tasks at the target context, for each benchmark whose cells are all done.

    All points have step 0, so that the UI draws bars instead of lines with a single point.
    """
    expected = Counter(cell["benchmark"] for cell in planned if cell["eval_length"] == target)
    for benchmark, number in expected.items():
        axes = {"benchmark": benchmark, "eval_length": target}
        group = [cell.record for cell in cells if axes.items() <= cell.planned.items()]
        if len(group) == number:
            when = max(_milliseconds(record.finished_at) for record in group)
            mean = math.fsum(_default_value(record) for record in group) / number
            yield MetricPoint(at_target_name(benchmark), mean, when, 0)


def _default_value(record: Record) -> float:
    scores = {score["metric"]: float(score["value"]) for score in record.result["scores"]}
    return scores[record.result["default_metric"]]


def _curve(training: FinishedStep) -> Iterable[MetricPoint]:
    entries = read_entries(training.folder / LOG)
    when = _milliseconds(training.record.finished_at)
    loss = TrainingSpec.curve_of(training.record.kind)
    many = _spread(len(entries), MAX_CURVE_POINTS)
    few = _spread(len(entries), MAX_TELEMETRY_POINTS)
    for index in sorted(many | few):
        for name, value in curves(training.record.kind, entries[index]).items():
            if index in (many if name == loss else few):
                yield MetricPoint(name, value, when, entries[index]["step"])


def curves(kind: str, entry: Mapping[str, Any]) -> dict[str, float]:
    loss = TrainingSpec.curve_of(kind)
    group = loss.rpartition("/")[0]
    known = {f"{group}/{key}": entry[key] for key in TELEMETRY if entry.get(key) is not None}
    return {loss: entry["loss"], **known}


def _spread(number: int, most: int) -> set[int]:
    """Return up to `most` evenly spaced indices below `number`, and the last index."""
    stride = max(1, math.ceil(number / most))
    return {*range(0, number, stride), number - 1} if number else set()


def _seed_note(first: Mapping[str, Any], row: str, done: int, planned: int) -> str:
    weights = "the base model's weights" if first["frozen"] else "weights tuned with this method"
    length = first["train_length"]
    trained = "" if length is None else f", last trained with a {length:,}-token context"
    return (
        f"**{row}** on {first['base_model']}, seed {first['seed']}: {weights}{trained}. {done} of"
        f" {planned} cells are done. A metric is `benchmark/task`; its step is the evaluated length"
        " in tokens."
    )


def _datasets(steps: Iterable[FinishedStep]) -> tuple[DatasetInput, ...]:
    found: dict[DatasetInput, None] = {}
    for step in steps:
        spec, lineage = step.record.spec, step.record.lineage
        texts = {"training": lineage.get("rows"), "evaluation": lineage.get("held_out")}
        for context, text in texts.items():
            if text and text["digest"]:
                found[_dataset(text["corpus"], context, text["digest"])] = None
        if spec.get("data"):
            found[_dataset(spec["benchmark"], "evaluation", spec["data"])] = None
    return tuple(found)


def _dataset(plugin: Mapping[str, Any], context: str, digest: str) -> DatasetInput:
    return DatasetInput(plugin["name"], context, digest[:MAX_DATASET_DIGEST], _text(plugin))


def _commit(record: Record) -> str:
    git = record.environment.get("git", {})
    return f"{git.get('commit') or 'unknown'}{'-dirty' if git.get('dirty') else ''}"


def _files(cells: Sequence[FinishedStep], training: FinishedStep | None) -> dict[str, str]:
    files = {"cells.json": [cell.record.model_dump(mode="json") for cell in cells]}
    if training:
        files["training.json"] = [training.record.model_dump(mode="json")]
    return {name: json.dumps(value, indent=1, sort_keys=True) for name, value in files.items()}


def _milliseconds(moment: str) -> int:
    return round(datetime.fromisoformat(moment).timestamp() * 1000)
