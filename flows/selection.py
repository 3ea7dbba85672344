"""`--select axis=value,...`: select cells of a plan, together with all steps that they need."""

from __future__ import annotations

from collections.abc import Mapping

from lce_core.errors import SpecError, did_you_mean
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.progress import StepState
from lce_core.study.variants import variant_label, variant_name

AXES = ("base_model", "method", "variant", "frozen", "seed", "benchmark", "task", "eval_length")


def select_cells(plan: StudyPlan, select: str) -> StudyPlan:
    """Return the plan with only the selected cells and their ancestors.

    `method=yarn` selects both variants of a method, `variant=yarn` the frozen one, and
    `variant=yarn-tuned` or `variant=yarn tuned` the tuned one.
    """
    if not select.strip():
        return plan
    wanted = _parse(select)
    for axis, values in wanted.items():
        known = set[str]().union(*(_values(cell, axis) for cell in plan.cells))
        for value in sorted(values - known):
            is_variant = any(value in _values(cell, "variant") for cell in plan.cells)
            raise SpecError(
                "--select",
                f"{axis}={value}",
                f"the {axis} of a cell of {plan.study.study}",
                f"write variant={value}" if is_variant else did_you_mean(value, known),
            )
    cells = [
        cell
        for cell in plan.cells
        if all(values & _values(cell, axis) for axis, values in wanted.items())
    ]
    if not cells:
        raise SpecError(
            "--select",
            f"{select!r}, which matches no cell",
            f"axis values that occur together in a cell of {plan.study.study}",
            "leave out an axis; `lce status` shows the study's cells",
        )
    return plan.with_cells(cells)


def require_work(plan: StudyPlan, where: str) -> None:
    if not plan.steps:
        raise SpecError(
            where,
            "no cell that can be computed on this machine"
            f" (reason for the first cell: {plan.cells[0].unavailable})",
            "at least one cell that can be computed",
            "provide the missing data or weights",
        )


def require_models(plan: StudyPlan, states: Mapping[str, StepState], execution: Execution) -> None:
    """Require the weights of base models, except those whose cells are all done."""
    needed = {
        cell.base_model
        for cell in plan.cells
        if cell.base_model not in plan.known_models
        or (cell.step and states[cell.step.fingerprint].state == "missing")
    }
    for name in filter(needed.__contains__, models_to_fetch(plan, execution)):
        raise SpecError(
            f"base model {name}",
            f"no weights in {Store(execution.home).models}",
            "weights that were downloaded before the run",
            fetching(name),
        )


def models_to_fetch(plan: StudyPlan, execution: Execution) -> list[str]:
    models = Store(execution.home).models
    return [
        model.known_as
        for model in plan.study.base_models
        if model.is_fetched
        and model.known_as not in execution.model_folders
        and not model.fetched(models)
    ]


def fetching(name: str) -> str:
    return f"run `lce fetch {name}`, or name a folder with --model-folder {name}=FOLDER"


def _parse(select: str) -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = {}
    for part in select.split(","):
        axis, equals, value = (piece.strip() for piece in part.partition("="))
        if axis not in AXES or not equals:
            raise SpecError(
                "--select",
                repr(part),
                "a known axis and a value as axis=value, or several such pairs joined by commas",
                did_you_mean(axis, AXES),
            )
        wanted.setdefault(axis, set()).add(value)
    return wanted


def _values(cell: PlannedCell, axis: str) -> set[str]:
    if axis == "variant":
        return {named(cell.method, cell.frozen) for named in (variant_name, variant_label)}
    value = getattr(cell, axis)
    return {str(value).lower() if isinstance(value, bool) else str(value)}
