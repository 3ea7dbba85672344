"""Find the artifacts that `lce gc` must keep: those that plans and locks of studies name.

A plan without some input data has no ids for the cells that read it. For such a cell, every
artifact of the same model, method, seed, benchmark, task and length is kept, and all artifacts that
earlier plans of the study name, because the cell's artifact may have been computed under another
label or seed.
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
from lce_core.store.study_folders import LOCK, UNREADABLE, ids_of_study, planned_ids
from lce_core.study.lock import Lock
from lce_core.study.step_kinds import CellSpec


def roots_of(store: Store, locks: Iterable[Path]) -> Roots:
    """Return the artifacts that plans, locks and further lock files name, as ids or axes.

    Raises:
      SpecError: if there is no plan and no lock, because `lce gc` would then remove everything.
      DataError: if a plan or lock cannot be read, because its ids are then unknown.
    """
    plans = sorted(store.home.glob("studies/*/plan.json"))
    kept = [*sorted(store.home.glob(f"studies/*/{LOCK}")), *locks]
    if not (plans or kept):
        raise SpecError(
            f"{store.home}",
            "no plan and no lock of any study",
            "at least one plan or lock, which lists the artifacts to keep",
            "run a study first, or pass its lock file with --lock",
        )
    ids = {step_id for path in kept for step_id in _lock(path).steps}
    places: list[dict[str, Any]] = []
    for path in plans:
        try:
            plan = read_mapping(path)
            ids.update(planned_ids(plan))
            if waiting := list(_places(plan)):
                places += waiting
                ids |= ids_of_study(path.parent)
        except UNREADABLE as error:
            raise DataError(
                f"{path}",
                f"content that is not a plan ({error})",
                "a readable plan",
                "run the study again, or remove the plan's folder if nobody needs its artifacts",
            ) from None
    return Roots(ids, tuple(places))


def _places(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for cell in plan["cells"]:
        if cell["cell"] is None and cell["waits_for_data"]:
            yield {axis: cell[axis] for axis in CellSpec.place}


def ids_before(store: Store, study: str) -> set[str]:
    """Return the step ids in a study's last plan, earlier plans and lock; skip unreadable files."""
    folder = store.home / "studies" / study
    with contextlib.suppress(DataError):
        return ids_of_study(folder).union(_lock(folder / LOCK).steps)
    return ids_of_study(folder)


def _lock(path: Path) -> Lock:
    try:
        text = read_file(path).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"{path}",
            f"a lock that cannot be read ({error})",
            "a readable file that `lce lock` wrote",
            "check the path and the file's permissions, or run `lce lock STUDY` to write it again",
        ) from None
    return Lock.parse(text, f"{path}")
