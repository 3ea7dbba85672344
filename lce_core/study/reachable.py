"""What a store has to keep: all that its studies' plans and locks name.

A plan that was made where data are out of reach knows no ids of the cells that read them. What
stands in the place of such a cell (its model, method, seed, task and length) is kept, whatever its
id, and so is all that the study's earlier plans named: an artifact's place is that of whoever
computed it first, which may have had another label or seed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lce_core.errors import DataError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.garbage import Roots
from lce_core.store.odd_files import read_file, read_mapping
from lce_core.store.planned import UNREADABLE, ids_of_study, planned_ids
from lce_core.store.study_folders import LOCK
from lce_core.study.lock import Lock
from lce_core.study.step_kinds import CellSpec, TrainingSpec
from lce_core.study.step_spec import KINDS


def roots_of(store: Store, locks: Iterable[Path]) -> Roots:
    """What the plans and locks in a store, and further locks, name.

    Raises:
      SpecError: there is none of them, so that everything would be garbage.
      DataError: one of them cannot be read, so that what it names is not known.
    """
    plans = [(path, _plan(path)) for path in sorted(store.home.glob("studies/*/plan.json"))]
    kept = [*sorted(store.home.glob(f"studies/*/{LOCK}")), *locks]
    if not (plans or kept):
        raise SpecError(
            f"{store.home}",
            "no plan and no lock of any study",
            "what says which artifacts are needed",
            "run a study first, or name its lock with --lock",
        )
    ids = {short for path in kept for short in _lock(path).steps}
    places: list[dict[str, Any]] = []
    for path, plan in plans:
        try:
            ids.update(planned_ids(plan))
            if waiting := list(_places(plan)):
                places += waiting
                ids |= ids_of_study(path.parent)
        except UNREADABLE as error:
            raise _no_plan(path, error) from None
    whole = all("steps" in plan for _, plan in plans)
    return Roots(ids, tuple(places), None if whole else _ALWAYS_NAMED)


_ALWAYS_NAMED = frozenset(
    name for name, kind in KINDS.items() if issubclass(kind, CellSpec | TrainingSpec)
)
"""Kinds of which plans of earlier versions name every step, too."""


def _places(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in plan["cells"]:
        # Plans of earlier versions do not say why a cell has no id.
        if cell["cell"] is None and cell.get("waits_for_data", True):
            yield {axis: cell[axis] for axis in CellSpec.place}


def _plan(path: Path) -> dict[str, Any]:
    try:
        plan = read_mapping(path)
    except UNREADABLE as error:
        raise _no_plan(path, error) from None
    return plan


def _no_plan(path: Path, error: BaseException) -> DataError:
    return DataError(
        f"{path}",
        f"no plan: {error}",
        "a plan as a run writes it",
        "run the study again, which writes it anew, or remove its folder",
    )


def ids_before(store: Store, study: str) -> set[str]:
    """Ids that a study's plans so far and the copy of its lock name; what is broken names none."""
    folder = store.home / "studies" / study
    with contextlib.suppress(DataError):
        return ids_of_study(folder).union(_lock(folder / LOCK).steps)
    return ids_of_study(folder)


def _lock(path: Path) -> Lock:
    try:
        text = read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        text = f"{error}"
    return Lock.parse(text, f"{path}")
