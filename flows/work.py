"""The remaining work of a request: its steps to do, in the order in which this host claims them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from flows.plans.budget import within_budget
from flows.plans.plugin_changes import require_same_plugins
from flows.plans.pricing import prices_of
from flows.request import Request
from flows.selection import require_work, select_cells
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failure_notes import folders_of
from lce_core.store.file_system import require_fit
from lce_core.store.sweeping import sweep
from lce_core.study.plan import StudyPlan
from lce_core.study.pricing.time_left import Predicted
from lce_core.study.progress import StepState, inspect
from lce_core.study.step_kinds import TrainingSpec, kind_named
from lce_core.study.units import Unit, dearest_first, units_to_do


@dataclass(frozen=True)
class Work:
    """The steps of a request, and their states in the store."""

    execution: Execution
    wanted: StudyPlan
    states: dict[str, StepState]
    swept: tuple[str, ...] = ()
    """Unfinished attempts of dead processes, which were removed from the store."""
    chosen: tuple[str, ...] = ()
    """Lines that describe what the budget pays for; empty without a budget."""

    @cached_property
    def units(self) -> list[Unit]:
        """Return the units to do, parents first."""
        return units_to_do(self.wanted, self.states)

    @cached_property
    def predicted(self) -> dict[str, Predicted]:
        """Return the predicted time of each step to do, by fingerprint."""
        steps = [step for unit in self.units for step in unit.steps]
        if not steps:
            return {}
        prices = prices_of(self.wanted, self.states, self.execution)
        return prices.predicted(steps, self.execution.processes)

    @property
    def seconds(self) -> dict[str, float]:
        """Return the predicted seconds of each step to do, by fingerprint."""
        return {print_: one.seconds for print_, one in self.predicted.items()}

    @property
    def done(self) -> set[str]:
        """Return the fingerprints of the steps that are done."""
        return {print_ for print_, state in self.states.items() if state.state == "done"}

    @property
    def trains(self) -> bool:
        """Return True if any training run is to do."""
        return any(issubclass(kind_named(unit.kind), TrainingSpec) for unit in self.units)

    def ordered(self, host: str) -> list[Unit]:
        """Return the units in the order in which `host` claims them."""
        return dearest_first(self.units, self.wanted, self.seconds, host)

    @property
    def failed_before(self) -> dict[str, str]:
        """Return the steps that failed permanently in an earlier run, with their reasons.

        Steps below a failed step are omitted.
        """
        remedy = "not tried again; --retry-failed does"
        return {
            f"{step.kind} {step.name}": f"{self.states[step.fingerprint].reason} ({remedy})"
            for step in self.wanted.steps.values()
            if self.states[step.fingerprint].state == "failed"
            and all(self.states[parent].state != "failed" for parent in step.parents.values())
        }


def work_of(
    request: Request, select: str = "", *, retry_failed: bool = False, budget: str = ""
) -> Work:
    """Prepare the store, save the study's plan there, and determine the steps to do.

    Args:
      request: the compiled request.
      select: "axis=value,..." for these cells only.
      retry_failed: retry steps that failed permanently.
      budget: "8gpuh", say, for only the blocks that it pays for; empty for all selected cells.

    Raises:
      SpecError: if no cell can be computed, the selection or the budget is wrong, a plug-in changed
        under one VERSION, or the store's file system does not support leases.
      StoreError: if the disk is full.
    """
    plan, how = request.plan, request.execution
    require_work(plan, request.where)
    store = Store(how.home)
    store.prepare()
    require_fit(store.home)
    swept = sweep(store)
    store.studies.save_plan(plan.study.study, plan.to_json(), request.where)
    wanted = select_cells(plan, select)
    folders = folders_of(how.model_dump(mode="json"))
    states = inspect(wanted, store, folders, retry_failed=retry_failed)
    require_same_plugins(states)
    if not budget:
        return Work(how, wanted, states, tuple(swept))
    blocks = within_budget(wanted, states, how, budget)
    return Work(how, blocks.plan, states, tuple(swept), tuple(blocks.lines()))
