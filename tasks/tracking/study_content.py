"""Build the MLflow runs of a study: for each table row, a run with means and one per seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from catalog.palette import Look, family_of, looks
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from lce_core.study.variants import CONTROL
from tasks.tracking.content import RunContent
from tasks.tracking.method_content import method_content
from tasks.tracking.seed_content import FinishedStep, seed_content


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
            contents += [method_content(plan, by_seed, seeds, colour), *seeds]
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
