"""Build the MLflow runs of a study: for each table row, a run with means and one per seed."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from catalog.palette import Look, family_of, looks
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from lce_core.study.variants import CONTROL, variant_name
from tasks.tracking.content import COLOUR, KIND, METHOD, NOTE, RUN_KEY, MetricPoint, RunContent
from tasks.tracking.seed_content import FinishedStep, key_of, model_suffix, seed_content

INTERVAL = "seed_interval"
"""`seed_interval/NAME` is half the width of the 95 % interval of the metric NAME."""
MEANS = "means.csv"
"""CSV file of every mean, its interval and its number of seeds."""


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
    trainings = {found.planned["checkpoint"]: found for found in _read(store, plan["trainings"])}
    rows: dict[tuple[Any, ...], dict[int, list[Mapping[str, Any]]]] = defaultdict(dict)
    for cell in plan["cells"]:
        axes = tuple(cell[axis] for axis in ("base_model", "method", "frozen"))
        rows[axes].setdefault(cell["seed"], []).append(cell)
    contents = []
    colours = _colours(plan["cells"])
    for (_, method, frozen), by_seed in rows.items():
        seeds, colour = [], colours[method].dark if frozen else colours[method].light
        for planned in by_seed.values():
            cells = list(_read(store, planned))
            if cells:
                training = trainings.get(cells[0].planned["checkpoint"])
                seeds.append(seed_content(plan, planned, cells, training, colour))
        if seeds:
            contents += [_method_content(plan, by_seed, seeds, colour), *seeds]
    return contents


def _read(store: Store, planned: Iterable[Mapping[str, Any]]) -> Iterable[FinishedStep]:
    for step in planned:
        if step["folder"] is None:
            continue
        folder = store.home / "artifacts" / step["folder"]
        try:
            record = Record.read(folder)
        except (OSError, ValueError):
            continue
        sizes = ((folder / name, entry.bytes) for name, entry in record.files_in(folder).items())
        if record.fingerprint == step["fingerprint"] and all(_has(*pair) for pair in sizes):
            yield FinishedStep(step, folder, record)


def _has(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False


def _colours(cells: Iterable[Mapping[str, Any]]) -> dict[str, Look]:
    """Return each method's look as in the report; MLflow would repeat one of 20 colours."""
    names = {cell["method"]: cell["method_name"] for cell in cells}
    return looks(
        {one: "none" if name == CONTROL else family_of(name) for one, name in names.items()}
    )


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
    row, key = variant_name(first["method"], first["frozen"]), key_of(plan, first)
    scored = {cell["benchmark"] for cells in planned.values() for cell in cells} | {"summary"}
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
        if name.partition("/")[0] not in scored:
            continue
        half = _half_width(values)
        low, high = ("", "") if half is None else (mean - half, mean + half)
        lines.append(f'"{name}",{step},{mean},{low},{high},{len(values)}\n')
        if half is not None:
            metrics.append(MetricPoint(f"{INTERVAL}/{name}", half, when, step))
    return RunContent(
        key=key,
        parent=None,
        name=f"{row}{model_suffix(plan, first['base_model'])}",
        start=min(seed.start for seed in seeds),
        end=max(seed.end for seed in seeds),
        params={**dict(_shared(seeds)), "seeds": ", ".join(map(str, planned))},
        metrics=tuple(sorted(metrics, key=lambda metric: (metric.key, metric.step))),
        tags={
            KIND: METHOD,
            "lce.study": plan["study"],
            RUN_KEY: key,
            COLOUR: colour,
            NOTE: _note(row, first, len(seeds), len(planned)),
        },
        datasets=tuple(dict.fromkeys(one for seed in seeds for one in seed.datasets)),
        files={MEANS: "".join(lines)},
    )


def _shared(seeds: Sequence[RunContent]) -> Iterator[tuple[str, str]]:
    for key, value in seeds[0].params.items():
        if key != "seed" and all(seed.params.get(key) == value for seed in seeds):
            yield key, value


def _half_width(values: Sequence[float]) -> float | None:
    """Return the half width of the mean's 95 % interval over seeds; None with one seed."""
    if len(values) == 1:
        return None
    from lce_core.statistics.clustered import mean_over_seeds  # loads scipy, which takes a second

    found = mean_over_seeds([[value] for value in values], same_prompts=False)
    assert found.high is not None
    return found.high - found.value


def _note(row: str, first: Mapping[str, Any], num_started: int, planned: int) -> str:
    seeds = "1 seed" if planned == 1 else f"{planned} seeds"
    missing = f" So far {num_started} of them have finished cells." if num_started < planned else ""
    return (
        f"**{row}** on {first['base_model']}: mean over {seeds}. The runs of the seeds are folded"
        f" below this run. A point is drawn where every seed has a value.{missing} A metric is"
        " `benchmark/task`; its step is the evaluated length in tokens."
        f" `{INTERVAL}/METRIC` is half the width of the metric's 95 % confidence interval over"
        f" seeds; {MEANS} lists the bounds."
    )
