"""Look up a plan's steps in a store: which are done, which a run would compute, and why."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from lce_core.store.artifacts import Store
from lce_core.store.plugin_code import AcceptedCode, PluginChange
from lce_core.store.records import Record
from lce_core.store.steps import Step, closure
from lce_core.study.plan import StudyPlan
from lce_core.study.plugin_folders import own_plugins
from lce_core.study.states import State

Change = Literal["new", "done", "stale", "failed", "unavailable"]

_WEIGHTS_ELSEWHERE = "its weights are elsewhere: they were deleted here or not copied to this home"
_FOR_GOOD = "non_finite"
"""Failure class that later runs retry only with --retry-failed: NaN would come again."""


@dataclass(frozen=True)
class StepState:
    """State of a step in the store, with the reason."""

    state: State
    reason: str
    holds: Literal["new", "stale", "failed"] = "new"
    """Detail of "missing": "stale" if the store has only an outdated or damaged artifact, or one
    without its weights; "failed" if the next run retries a failed step; else "new"."""
    differs: tuple[str, ...] = ()
    """Settings that differ from the most similar finished step with the same method, seed, length
    and so on, as "setting: old -> new"."""
    was: str | None = None
    """Id of the artifact of an earlier plan that this step replaces."""
    plugin_changes: frozenset[PluginChange] = frozenset()
    """Plug-ins of this step or its inputs whose code changed without a new VERSION."""

    @property
    def change(self) -> Change:
        """The state for display: `holds` if the state is "missing", else the state itself."""
        return self.holds if self.state == "missing" else self.state


def inspect(
    plan: StudyPlan, store: Store, folders: Mapping[str, str], *, retry_failed: bool = False
) -> dict[str, StepState]:
    """Return the state of every step of a plan by fingerprint, parents before children.

    An unavailable step is retried if its run had other data and model `folders`, and every failed
    step with `retry_failed`.
    """
    states: dict[str, StepState] = {}
    listing, accepted = store.listing(), AcceptedCode(store.home)
    without_weights: set[str] = set()
    for step in plan.steps.values():
        record = store.result(step, listing)
        doubts = _changes(record, step, accepted) if record and record.plugins else frozenset()
        doubts = doubts.union(*(states[one].plugin_changes for one in step.parents.values()))
        if record and doubts:
            reason = "; ".join(sorted(map(str, doubts)))
            states[step.fingerprint] = StepState("missing", reason, "stale", plugin_changes=doubts)
        elif record and not record.has_weights_elsewhere(store.path(step, listing)):
            states[step.fingerprint] = StepState("done", "")
        else:
            without_weights |= {step.fingerprint} if record else set()
            failure = None if retry_failed else store.failures.of(step)
            state = _blocked(step, states) or StepState("missing", "new")
            if state.state == "missing" and failure:
                why = f"failed before ({failure['class']}: {failure['message']})"
                state = given_up(failure, folders) or StepState("missing", why, "failed")
            elif state.state == "missing" and store.path(step, listing).exists():
                what = _WEIGHTS_ELSEWHERE if record else "its artifact is damaged"
                state = StepState("missing", what, "stale")
            states[step.fingerprint] = replace(state, plugin_changes=doubts)
    for fingerprint in without_weights - needed_steps(plan, states):
        states[fingerprint] = StepState("done", _WEIGHTS_ELSEWHERE)
    store.file_facts.save()
    return states


def needed_steps(plan: StudyPlan, states: Mapping[str, StepState]) -> set[str]:
    """Return the fingerprints of the missing cells, and of missing steps whose results they read.

    Deleted weights or rows are not computed again if all cells that read them are done.
    """

    def missing(steps: Iterable[str]) -> Iterator[str]:
        return (one for one in steps if one in plan.steps and states[one].state == "missing")

    cells = missing(cell.step.fingerprint for cell in plan.cells if cell.step)
    return closure(cells, lambda one: missing(inputs_of(plan.steps[one])))


def inputs_of(step: Step) -> list[str]:
    """Return what must be done before a step; a training run also waits for its evaluation text."""
    texts = (step.axes.get(role) for role in ("held_out", "validation"))
    return [*step.parents.values(), *filter(None, texts)]


def given_up(failure: Mapping[str, Any], folders: Mapping[str, str]) -> StepState | None:
    if failure["class"] == _FOR_GOOD:
        return StepState("failed", f"{failure['class']}: {failure['message']}")
    if failure["class"] == "unavailable" and failure["folders"] == folders:
        return StepState("unavailable", failure["message"])
    return None


def _changes(record: Record, step: Step, accepted: AcceptedCode) -> frozenset[PluginChange]:
    present = own_plugins(step.spec)
    changes = (
        PluginChange(name, code.version, was=ran.sha256, now=code.sha256, file=code.file)
        for name, ran in record.plugins.items()
        if (code := present.get(name)) and code.sha256 != ran.sha256
    )
    return frozenset(change for change in changes if not accepted.covers(change))


def _blocked(step: Step, states: Mapping[str, StepState]) -> StepState | None:
    for role, parent in step.parents.items():
        if states[parent].state == "failed":
            return StepState("failed", f"its {role} {parent[:12]} failed: {states[parent].reason}")
        if states[parent].state == "unavailable":
            return StepState("unavailable", states[parent].reason)
    return None
