"""What a plan still needs: looks its steps up in a store, and says why each is done or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lce_core.store.artifacts import Store
from lce_core.store.listing import Listing
from lce_core.store.plugin_code import AcceptedCode, PluginChange
from lce_core.store.records import Record
from lce_core.store.steps import Step
from lce_core.study.plan import StudyPlan
from lce_core.study.plugin_folders import own_plugins

State = Literal["done", "to do", "failed", "unavailable"]
Change = Literal["new", "done", "stale", "failed", "unavailable"]

_FOR_GOOD = "non_finite"
"""The failure class that no later run tries again: the same numbers diverge again."""


@dataclass(frozen=True)
class StepState:
    """Where a step stands."""

    state: State
    reason: str
    holds: Literal["new", "stale", "failed"] = "new"
    """Of one to do, what is there of it: nothing, an outdated or damaged artifact, a failure."""
    differs: tuple[str, ...] = ()
    """Fields in which it differs from what has finished in its place, as "field: old -> new"."""
    was: str | None = None
    """Id of the artifact of an earlier plan that was in its place."""
    plugin_changes: frozenset[PluginChange] = frozenset()
    """Changes of plug-ins under one VERSION that make the step, or a parent, doubtful."""

    @property
    def change(self) -> Change:
        """Where it stands, in one word, against what the store holds."""
        return self.holds if self.state == "to do" else self.state


def inspect(
    plan: StudyPlan,
    store: Store,
    folders: Mapping[str, str],
    *,
    retry_failed: bool = False,
) -> dict[str, StepState]:
    """State of every step by fingerprint, parents before children.

    Args:
      plan: the steps to look up.
      store: where they are looked up.
      folders: `folders_of` the execution; what was out of reach is tried again with other ones.
      retry_failed: also try again what failed for good (a loss that became NaN).
    """
    states: dict[str, StepState] = {}
    listing, accepted = store.listing(), AcceptedCode(store.home)
    for step in plan.steps.values():
        record = store.record(step, listing)
        doubts = _changes(record, step, accepted) if record and record.plugins else frozenset()
        doubts = doubts.union(*(states[one].plugin_changes for one in step.parents.values()))
        if record and not doubts:
            states[step.fingerprint] = StepState("done", "")
        elif record:
            reason = "; ".join(sorted(map(str, doubts)))
            states[step.fingerprint] = StepState("to do", reason, "stale", plugin_changes=doubts)
        else:
            state = _unfinished(step, store, listing, states, folders, retry_failed)
            states[step.fingerprint] = replace(state, plugin_changes=doubts)
    store.file_facts.save()
    return states


def given_up(failure: Mapping[str, Any], folders: Mapping[str, str]) -> StepState | None:
    """State of a step that no run tries again after this failure; None where one does.

    Args:
      failure: as `FailureNotes.of` gives it.
      folders: `folders_of` the execution.
    """
    if failure["class"] == _FOR_GOOD:
        return StepState("failed", f"{failure['class']}: {failure['message']}")
    if failure["class"] == "unavailable" and failure["folders"] == folders:
        return StepState("unavailable", failure["message"])
    return None


def _changes(record: Record, step: Step, accepted: AcceptedCode) -> frozenset[PluginChange]:
    """Return which plug-ins of a finished step have other code now, apart from accepted changes."""
    present, found = own_plugins(step.spec), []
    for plugin, ran in record.plugins.items():
        now = present.get(plugin)
        if now is not None and now.sha256 != ran.sha256:
            found.append(
                PluginChange(
                    plugin=plugin,
                    version=now.version,
                    was=ran.sha256,
                    now=now.sha256,
                    file=now.file,
                )
            )
    return frozenset(change for change in found if not accepted.covers(change))


def _unfinished(
    step: Step,
    store: Store,
    listing: Listing,
    states: dict[str, StepState],
    folders: Mapping[str, str],
    retry_failed: bool,
) -> StepState:
    for role, parent in step.parents.items():
        if states[parent].state == "failed":
            return StepState("failed", f"its {role} {parent[:12]} failed: {states[parent].reason}")
        if states[parent].state == "unavailable":
            return StepState("unavailable", states[parent].reason)
    failure = store.failures.of(step)
    if failure and not retry_failed:
        return given_up(failure, folders) or StepState(
            "to do", f"failed before ({failure['class']}: {failure['message']})", "failed"
        )
    if store.path(step, listing).exists():
        return StepState("to do", "its artifact is damaged", "stale")
    return StepState("to do", "new")
