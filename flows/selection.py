"""`--select axis=value,...` selects cells of a plan; checks that a run can compute them.

The ids of steps contain a plug-in's VERSION but not its code. If a user's plug-in changed although
its VERSION did not, a study would mix results of the old and the new code unless the user accepts
it with --accept-plugin-change.
"""

from collections.abc import Mapping

from lce_core.errors import SpecError, did_you_mean
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import folders_of
from lce_core.store.plugin_code import AcceptedCode
from lce_core.study.plan import PlannedCell, StudyPlan
from lce_core.study.plugin_folders import own_plugins
from lce_core.study.progress import StepState, inspect
from lce_core.study.variants import variant_label, variant_name

AXES = ("base_model", "method", "variant", "frozen", "seed", "benchmark", "task", "eval_length")
REMEDY = "raise VERSION in the file, or give --accept-plugin-change if the numbers stay the same"


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


def change_lines(states: Mapping[str, StepState]) -> list[str]:
    lines = []
    for (plugin, version, file), number in _steps_by_plugin(states).items():
        steps = f"{number:,} step{'s' * (number > 1)}"
        lines.append(
            f"{plugin} ({file}, VERSION {version}) or a helper that it imports has changed since"
            f" it ran; {steps} depend{'s' * (number == 1)} on the old code. Even a changed"
            f" comment counts: {REMEDY}."
        )
    return lines


def require_same_plugins(states: Mapping[str, StepState]) -> None:
    for (plugin, version, file), number in _steps_by_plugin(states).items():
        raise SpecError(
            file,
            f"changed code of {plugin} VERSION {version}, in this file or a helper that it imports"
            f" (number of steps that depend on the old code: {number:,})",
            "a higher VERSION after a change of the code, even of a comment",
            REMEDY,
        )


def check_plugin_changes(plan: StudyPlan, execution: Execution, *, accept: bool) -> None:
    if not any(own_plugins(step.spec) for step in plan.steps.values()):
        return  # inspecting all steps takes a while
    store = Store(execution.home)
    states = inspect(plan, store, folders_of(execution.model_dump(mode="json")))
    if not accept:
        require_same_plugins(states)
    elif changes := {change for state in states.values() for change in state.plugin_changes}:
        AcceptedCode(store.home).accept(changes)


def _steps_by_plugin(states: Mapping[str, StepState]) -> dict[tuple[str, int, str], int]:
    """Count the steps that ran the old code of a plug-in, VERSION and file, and descendants."""
    counts: dict[tuple[str, int, str], int] = {}
    for state in states.values():
        # The code may have changed several times, with a change for each; count a step only once.
        for plugin in {(one.plugin, one.version, one.file) for one in state.plugin_changes}:
            counts[plugin] = counts.get(plugin, 0) + 1
    return dict(sorted(counts.items()))


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
