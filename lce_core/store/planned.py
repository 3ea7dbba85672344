"""What a study's plans have named: the ids of its last plan, and those of earlier ones.

A plan replaces the one before it. Ids that only earlier ones named stay on a list beside it while
the store holds their artifacts, so that `lce plan` can say what became of them. The list keeps
nothing from `lce gc`, but where the last plan was made without its data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from lce_core.store.identity import SHORT
from lce_core.store.odd_files import read_mapping
from lce_core.store.records import write_json

PLAN = "plan.json"
EARLIER = "earlier.json"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", strict=True)


class _Cell(_Part):
    cell: str | None
    fingerprint: str | None = None
    folder: str | None
    checkpoint: str | None
    blocked_by: list[str]
    unavailable: str | None
    base_model: str
    method: str
    frozen: bool
    exact_attention: bool
    seed: int
    benchmark: str
    task: str
    eval_length: int
    profile: str | None
    train_length: int | None


class _Training(_Part):
    fingerprint: str
    checkpoint: str
    folder: str


class _Plan(_Part):
    """What readers of a plan rely on; plans of earlier versions lack the rest."""

    study: str
    hypothesis: str | None
    target_context: int
    base_contexts: dict[str, int | None]
    cells: list[_Cell]
    trainings: list[_Training]
    steps: list[str] = []
    kinds: dict[str, str] = {}


def read_plan(file: Path) -> dict[str, Any]:
    """Return a study's plan as `StudyPlan.to_json` has it.

    Raises:
      OSError: there is no such file, or it cannot be read.
      ValueError: it is no plan.
    """
    plan = read_mapping(file)
    _Plan.model_validate(plan)
    return plan


def planned_ids(plan: Mapping[str, Any]) -> Iterator[str]:
    """The ids that a plan names, of versions without the list of all steps those of cells and runs.

    Raises:
      One of `UNREADABLE`, if it is no plan.
    """
    for cell in plan["cells"]:
        yield from (short for short in (cell["cell"], cell["checkpoint"]) if short)
        yield from cell["blocked_by"]
    yield from (run["checkpoint"] for run in plan["trainings"])
    yield from (short[:SHORT] for short in plan.get("steps", ()))


def ids_of_study(folder: Path) -> set[str]:
    """Ids that the plans of the study in `folder` have named; those of a broken plan are lost."""
    return _ids_in(folder / PLAN, planned_ids) | _ids_in(folder / EARLIER, lambda ids: ids["steps"])


def replace_plan(folder: Path, plan: Mapping[str, Any], held: Collection[str]) -> None:
    """Writes a study's plan.

    Args:
      folder: the study's, in the store.
      plan: `StudyPlan.to_json`.
      held: ids of the artifacts that the store holds.
    """
    earlier = ids_of_study(folder).intersection(held)
    with contextlib.suppress(*UNREADABLE):
        earlier.difference_update(planned_ids(plan))
    if earlier or (folder / EARLIER).exists():
        # First: killed in between, the list names what the plan names too, which does no harm.
        write_json(folder / EARLIER, {"steps": sorted(earlier)})
    write_json(folder / PLAN, plan)


def _ids_in(file: Path, read: Callable[[Any], Iterable[str]]) -> set[str]:
    try:
        return set(read(read_mapping(file)))
    except UNREADABLE:
        return set()
