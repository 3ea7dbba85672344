"""What a request still needs: the steps to do, in the order in which this host takes them."""

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
from lce_core.study.plan import StudyPlan
from lce_core.study.pricing.time_left import Predicted
from lce_core.study.progress import StepState, inspect
from lce_core.study.step_kinds import TrainingSpec, kind_named
from lce_core.study.units import Unit, dearest_first, units_to_do


@dataclass(frozen=True)
class Work:
    """The steps of a request, and where they stand in the store."""

    execution: Execution
    wanted: StudyPlan
    states: dict[str, StepState]
    swept: tuple[str, ...] = ()
    """Unfinished attempts of dead processes, which were removed."""
    chosen: tuple[str, ...] = ()
    """Lines that say what a budget pays for; none without one."""

    @cached_property
    def units(self) -> list[Unit]:
        """To do, parents first."""
        return units_to_do(self.wanted, self.states)

    @cached_property
    def predicted(self) -> dict[str, Predicted]:
        """Of each step to do, by fingerprint."""
        steps = [step for unit in self.units for step in unit.steps]
        if not steps:
            return {}
        prices = prices_of(self.wanted, self.states, self.execution)
        return prices.predicted(steps, self.execution.processes)

    @property
    def seconds(self) -> dict[str, float]:
        """Predicted of each step to do."""
        return {print_: one.seconds for print_, one in self.predicted.items()}

    @property
    def done(self) -> set[str]:
        """Fingerprints of the steps that are done."""
        return {print_ for print_, state in self.states.items() if state.state == "done"}

    @property
    def trains(self) -> bool:
        """Whether there are training runs to do."""
        return any(issubclass(kind_named(unit.kind), TrainingSpec) for unit in self.units)

    def ordered(self, host: str) -> list[Unit]:
        """The units in the order in which a host takes them."""
        return dearest_first(self.units, self.wanted, self.seconds, host)

    @property
    def failed_before(self) -> dict[str, str]:
        """Steps that an earlier run left failed for good, with their reasons."""
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
    """Prepares the store, leaves the study's plan there, and looks what is to do.

    Args:
      request: what was asked for.
      select: "axis=value,..." for these cells only.
      retry_failed: also what failed for good.
      budget: "8gpuh" for whole blocks over all methods only; all that is selected without one.

    Raises:
      SpecError: no cell can be, the selection or the budget is wrong, a plug-in changed under one
        VERSION, or the store lies where leases do not hold.
      StoreError: the disk is full.
    """
    plan, how = request.plan, request.execution
    require_work(plan, request.where)
    store = Store(how.home)
    store.prepare()
    require_fit(store.home)
    swept = store.sweep()
    store.studies.save_plan(plan.study.study, plan.to_json(), request.where)
    wanted = select_cells(plan, select)
    folders = folders_of(how.model_dump(mode="json"))
    states = inspect(wanted, store, folders, retry_failed=retry_failed)
    require_same_plugins(states)
    if not budget:
        return Work(how, wanted, states, tuple(swept))
    blocks = within_budget(wanted, states, how, budget)
    return Work(how, blocks.plan, states, tuple(swept), tuple(blocks.lines()))
