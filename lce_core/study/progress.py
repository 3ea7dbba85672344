"""Look up a plan's steps in a store: which are done, which a run would compute, and why."""

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
from lce_core.study.states import State

Change = Literal["new", "done", "stale", "failed", "unavailable"]

_FOR_GOOD = "non_finite"
"""Failure class (a loss or score became NaN) that later runs do not retry, because a deterministic
run diverges again."""


@dataclass(frozen=True)
class StepState:
    """State of a step in the store, with the reason."""

    state: State
    reason: str
    holds: Literal["new", "stale", "failed"] = "new"
    """Detail of the state "missing": "stale" if the store has an outdated or damaged artifact,
    "failed" if the last attempt failed and the next run retries it, else "new"."""
    differs: tuple[str, ...] = ()
    """Differences "setting: old -> new" from the most similar finished step, if there is one for
    the same method, seed, length and so on."""
    was: str | None = None
    """Id of the artifact that an earlier plan named instead of this step; None if there is none."""
    plugin_changes: frozenset[PluginChange] = frozenset()
    """Plug-ins of the step or of a step it depends on whose code changed without a new VERSION."""

    @property
    def change(self) -> Change:
        """The state for display: `holds` if the state is "missing", else the state itself."""
        return self.holds if self.state == "missing" else self.state


def inspect(
    plan: StudyPlan,
    store: Store,
    folders: Mapping[str, str],
    *,
    retry_failed: bool = False,
) -> dict[str, StepState]:
    """Return the state of every step of a plan by fingerprint, parents before children.

    Args:
      plan: The steps to look up.
      store: The store to search.
      folders: Data and model folders of this run (`folders_of`). A step that was unavailable is
        retried if they changed.
      retry_failed: Also retry steps with a permanent failure, such as a loss that became NaN.
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
            states[step.fingerprint] = StepState("missing", reason, "stale", plugin_changes=doubts)
        else:
            state = _unfinished(step, store, listing, states, folders, retry_failed)
            states[step.fingerprint] = replace(state, plugin_changes=doubts)
    store.file_facts.save()
    return states


def given_up(failure: Mapping[str, Any], folders: Mapping[str, str]) -> StepState | None:
    """Return the state of a step whose failure no later run retries; None if a later run does.

    Args:
      failure: The step's failure, from `FailureNotes.of`.
      folders: Data and model folders of this run (`folders_of`). If the step was unavailable and
        the folders differ from those of the failed run, it is retried.
    """
    if failure["class"] == _FOR_GOOD:
        return StepState("failed", f"{failure['class']}: {failure['message']}")
    if failure["class"] == "unavailable" and failure["folders"] == folders:
        return StepState("unavailable", failure["message"])
    return None


def _changes(record: Record, step: Step, accepted: AcceptedCode) -> frozenset[PluginChange]:
    """Return the changes of plug-in code since the step finished that the user did not accept."""
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
            "missing", f"failed before ({failure['class']}: {failure['message']})", "failed"
        )
    if store.path(step, listing).exists():
        return StepState("missing", "its artifact is damaged", "stale")
    return StepState("missing", "new")
