"""Handle user plug-ins that changed under one VERSION: describe, refuse or accept the change."""

from __future__ import annotations

from collections.abc import Mapping

from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failure_notes import folders_of
from lce_core.store.plugin_code import AcceptedCode
from lce_core.study.plan import StudyPlan
from lce_core.study.plugin_folders import own_plugins
from lce_core.study.progress import StepState, inspect

ACCEPT = "--accept-plugin-change"
REMEDY = f"raise VERSION in the file, or give {ACCEPT} if the numbers stay the same"


def change_lines(states: Mapping[str, StepState]) -> list[str]:
    """Return a sentence for each changed plug-in: file, VERSION, number of steps, remedy."""
    told = []
    for (plugin, version, file), number in _steps_by_plugin(states).items():
        steps = f"{number:,} step{'s' * (number > 1)}"
        told.append(
            f"{plugin} ({file}, VERSION {version}) or a helper that it imports changed since"
            f" it ran; {steps} depend{'s' * (number == 1)} on the old code. A"
            f" changed comment counts as well: {REMEDY}."
        )
    return told


def require_same_plugins(states: Mapping[str, StepState]) -> None:
    """Raise an error rather than mix results of two versions of a plug-in's code.

    Args:
      states: state of each step of a plan, by fingerprint.

    Raises:
      SpecError: names the first plug-in that changed under one VERSION.
    """
    for (plugin, version, file), number in _steps_by_plugin(states).items():
        raise SpecError(
            file,
            f"changed code of {plugin} VERSION {version}, in this file or a helper that it imports"
            f" (number of finished steps that ran the old code: {number:,})",
            "a higher VERSION after a change of the code (comments count)",
            REMEDY,
        )


def meet_plugin_changes(plan: StudyPlan, execution: Execution, *, accept: bool) -> None:
    """Accept or refuse changed plug-ins, before a run starts or prepares its store.

    Args:
      plan: the wanted steps.
      execution: its home holds the records.
      accept: if True, record in the home that the present code gives the same numbers as the code
        that ran, instead of raising an error.

    Raises:
      SpecError: as `require_same_plugins`.
    """
    if not any(own_plugins(step.spec) for step in plan.steps.values()):
        return  # inspecting all steps takes a while
    store = Store(execution.home)
    states = inspect(plan, store, folders_of(execution.model_dump(mode="json")))
    if accept:
        _accept(states, store)
    else:
        require_same_plugins(states)


def _accept(states: Mapping[str, StepState], store: Store) -> None:
    changes = {change for state in states.values() for change in state.plugin_changes}
    if changes:
        AcceptedCode(store.home).accept(changes)


def _steps_by_plugin(states: Mapping[str, StepState]) -> dict[tuple[str, int, str], int]:
    """Count the steps to which each change applies, by (plug-in, VERSION, file).

    A change applies to the steps that ran the plug-in's old code and to all steps after them.
    """
    counts: dict[tuple[str, int, str], int] = {}
    for state in states.values():
        # Finished steps may have run several earlier versions of a file; count each step once.
        for plugin in {(one.plugin, one.version, one.file) for one in state.plugin_changes}:
            counts[plugin] = counts.get(plugin, 0) + 1
    return dict(sorted(counts.items()))
