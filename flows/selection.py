"""`--select axis=value,...`: select cells of a plan together with all steps they need."""

from __future__ import annotations

from collections.abc import Sequence

from lce_core.errors import SpecError, did_you_mean
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.study.plan import PlannedCell, StudyPlan

AXES = ("base_model", "method", "frozen", "seed", "benchmark", "task", "eval_length")


def select_cells(plan: StudyPlan, select: str) -> StudyPlan:
    """Return the plan with only the selected cells and their ancestors.

    Values of the same axis are alternatives; different axes must all match.

    Raises:
      SpecError: if an axis is unknown, if no cell has one of the values, or if no cell matches on
        all axes.
    """
    if not select.strip():
        return plan
    wanted = _parse(select)
    for axis, values in wanted.items():
        known = {_text(cell, axis) for cell in plan.cells}
        for value in sorted(values - known):
            raise SpecError(
                "--select",
                f"{axis}={value}",
                f"the {axis} of a cell of {plan.study.study}",
                did_you_mean(value, known),
            )
    cells = [
        cell
        for cell in plan.cells
        if all(_text(cell, axis) in values for axis, values in wanted.items())
    ]
    if not cells:
        raise SpecError(
            "--select",
            repr(select),
            f"a cell of {plan.study.study} that matches on all axes",
            "leave out an axis; `lce status` shows the study's cells",
        )
    return with_cells(plan, cells)


def with_cells(plan: StudyPlan, cells: Sequence[PlannedCell]) -> StudyPlan:
    """Return the plan with only `cells` and all steps that these cells need.

    Steps in `StudyPlan.expected`, whose data is missing, are treated in the same way.
    """
    known = {**plan.expected, **plan.steps}
    needed: set[str] = set()
    waiting = [one.fingerprint for cell in cells for one in (cell.step, cell.expected) if one]
    while waiting:
        fingerprint = waiting.pop()
        if fingerprint not in needed:
            needed.add(fingerprint)
            waiting.extend(known[fingerprint].parents.values())
    steps = {name: step for name, step in plan.steps.items() if name in needed}
    expected = {name: step for name, step in plan.expected.items() if name in needed}
    return StudyPlan(plan.study, steps, tuple(cells), expected)


def require_work(plan: StudyPlan, where: str) -> None:
    """Raise SpecError with the first cell's reason if no cell can be computed on this machine."""
    if not plan.steps:
        raise SpecError(
            where,
            f"no cell that can be computed on this machine; the first: {plan.cells[0].unavailable}",
            "at least one cell that can be computed",
            "provide the missing data or weights",
        )


def require_models(plan: StudyPlan, execution: Execution) -> None:
    """Raise SpecError if a base model's weights have not been fetched, with the command for it."""
    for name in models_to_fetch(plan, execution):
        raise SpecError(
            f"base model {name}",
            f"no such model in {Store(execution.home).models}",
            "fetched weights",
            fetching(name),
        )


def models_to_fetch(plan: StudyPlan, execution: Execution) -> list[str]:
    """Return the names of the study's base models that `lce fetch` must download first.

    Models for which the user gives a folder need no download.
    """
    models = Store(execution.home).models
    return [
        model.known_as
        for model in plan.study.base_models
        if model.is_fetched
        and model.known_as not in execution.model_folders
        and not model.fetched(models)
    ]


def fetching(name: str) -> str:
    """Return the sentence that tells the user how to get a base model's weights."""
    return f"run `lce fetch {name}`, or name a folder with --model-folder {name}=FOLDER"


def _parse(select: str) -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = {}
    for part in select.split(","):
        axis, equals, value = (piece.strip() for piece in part.partition("="))
        if axis not in AXES or not equals:
            raise SpecError(
                "--select",
                repr(part),
                "axis=value, or several joined by commas",
                did_you_mean(axis, AXES),
            )
        wanted.setdefault(axis, set()).add(value)
    return wanted


def _text(cell: PlannedCell, axis: str) -> str:
    value = getattr(cell, axis)
    return str(value).lower() if isinstance(value, bool) else str(value)
