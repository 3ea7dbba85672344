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

from lce_core.store.identity import SHORT
from lce_core.store.odd_files import read_mapping
from lce_core.store.records import write_json

PLAN = "plan.json"
EARLIER = "earlier.json"
UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError)


_TEXT_OR_NONE = (str, type(None))
_CELL = {
    **dict.fromkeys(("base_model", "method", "benchmark", "task"), str),
    **dict.fromkeys(("cell", "folder", "checkpoint", "unavailable", "profile"), _TEXT_OR_NONE),
    **dict.fromkeys(("frozen", "exact_attention"), bool),
    **dict.fromkeys(("seed", "eval_length"), int),
    "train_length": (int, type(None)),
    "blocked_by": list,
}
_TRAINING = dict.fromkeys(("fingerprint", "checkpoint", "folder"), str)
_PLAN = {
    "study": str,
    "hypothesis": _TEXT_OR_NONE,
    "target_context": int,
    "base_contexts": dict,
    "cells": list,
    "trainings": list,
}
"""Keys of a plan, and of its cells and training runs, that all readers rely on; plans of earlier
versions lack others."""


def read_plan(file: Path) -> dict[str, Any]:
    """Return a study's plan as `StudyPlan.to_json` has it.

    Raises:
      OSError: there is no such file, or it cannot be read.
      ValueError: it is no plan.
    """
    plan = read_mapping(file)
    _require(plan, _PLAN)
    _require({"steps": [], "kinds": {}, **plan}, {"steps": list, "kinds": dict})
    for cell in plan["cells"]:
        _require(cell, _CELL)
    for training in plan["trainings"]:
        _require(training, _TRAINING)
    return plan


def _require(content: Any, types: Mapping[str, Any]) -> None:
    if not isinstance(content, dict):
        raise ValueError(f"{type(content).__name__}, not a mapping")
    for name, kind in types.items():
        if not isinstance(content.get(name, ...), kind):
            raise ValueError(f"{name}: {content.get(name)!r}")


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
