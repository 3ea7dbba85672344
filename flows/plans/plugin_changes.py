"""Detect plug-ins of the user whose code changed although their VERSION did not.

The ids of steps contain a plug-in's VERSION but not its code, so a study would mix results of the
old and the new code unless the user accepts it with --accept-plugin-change.
"""

from __future__ import annotations

from collections.abc import Mapping

from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import folders_of
from lce_core.store.plugin_code import AcceptedCode
from lce_core.study.plan import StudyPlan
from lce_core.study.plugin_folders import own_plugins
from lce_core.study.progress import StepState, inspect

REMEDY = "raise VERSION in the file, or give --accept-plugin-change if the numbers stay the same"


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
