"""Prepare a run: check its studies and determine the steps to do.

`lce run`, `lce worker` and the deployment share `preflight`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from flows.locking import compare_with_lock
from flows.plans.budget import within_budget
from flows.plans.pricing import prices_of
from flows.request import Request, compile_request, found_by_name
from flows.selection import check_plugin_changes, require_models, require_work, select_cells
from flows.settings import DATA_FOLDER, mlflow_server
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.failures import folders_of
from lce_core.store.file_system import require_fit
from lce_core.store.garbage import sweep
from lce_core.study.looks import next_look, up_to_look
from lce_core.study.plan import StudyPlan
from lce_core.study.pricing.calibration import Predicted
from lce_core.study.progress import StepState, inspect
from lce_core.study.units import Unit, dearest_first, units_to_do
from tasks.mending import mend_projections


@dataclass(frozen=True)
class RunOptions:
    """The user's choice of the cells that a run computes."""

    select: str = ""
    """Only cells that match "axis=value,..."."""
    retry_failed: bool = False
    """Retry steps that failed permanently (a loss or score was not finite)."""
    budget: str = ""
    """Only the blocks that fit into a budget such as "8gpuh"."""
    accept_plugin_change: bool = False
    """Keep the results of plug-ins whose code changed although their VERSION did not."""


@dataclass(frozen=True)
class Work:
    """Work of a run for one study: the plan of the selected cells, and the state of its steps."""

    request: Request
    wanted: StudyPlan
    """The request's plan, reduced to the selected cells that fit into the budget. Without selection
    and budget, a study with looks is reduced to the seeds up to its next look."""
    states: dict[str, StepState]
    """State of each step of `wanted` before the run, by fingerprint."""
    swept: tuple[str, ...] = ()
    """Names of dead processes' unfinished attempts that `preflight` removed."""
    chosen: tuple[str, ...] = ()
    """Lines for the user about the blocks within the budget."""
    notes: tuple[str, ...] = ()
    """Notes for the user about a reused study name or differences from the lock."""
    look: int | None = None
    """Number of the look that follows this work, counted from 1."""

    @cached_property
    def units(self) -> list[Unit]:
        """The units to do, producers before consumers."""
        return units_to_do(self.wanted, self.states)

    @cached_property
    def predicted(self) -> dict[str, Predicted]:
        steps = [step for unit in self.units for step in unit.steps]
        if not steps:
            return {}
        prices = prices_of(self.wanted, self.states, self.request.execution)
        return prices.predicted(steps, self.request.execution.training_processes)

    def ordered(self, host: str) -> list[Unit]:
        """Return the units in starting order; ties differ between `host` names."""
        seconds = {name: one.seconds for name, one in self.predicted.items()}
        return dearest_first(self.units, self.wanted, seconds, host)

    @property
    def failed_before(self) -> dict[str, str]:
        """Reasons of permanent failures in an earlier run, by "KIND NAME"."""
        remedy = "to retry it, use --retry-failed"
        return {
            f"{step.kind} {step.name}": f"{self.states[step.fingerprint].reason} ({remedy})"
            for step in self.wanted.steps.values()
            if self.states[step.fingerprint].state == "failed"
            and all(self.states[parent].state != "failed" for parent in step.parents.values())
        }


def preflight(
    studies: Sequence[str], execution: Execution, options: RunOptions
) -> tuple[Work, ...]:
    """Check the studies (names, or paths of files), prepare the store, determine the steps to do.

    All studies are checked before the store is prepared. The checks write nothing to the store
    except digests of data files and accepted plug-in changes.
    """
    store = Store(execution.home)
    mlflow_server(store.home)  # raises an error before the steps, not after them
    files, found = zip(*(found_by_name(study, execution) for study in studies), strict=True)
    execution = _with_folders_of_all(found)
    requests = [compile_request(file, execution, files) for file in files]
    works = [_checked(request, options, store) for request in requests]
    store.prepare()
    require_fit(store.home)
    swept = sweep(store)
    mend_projections(execution.home)
    works = [_saved(work, store) for work in works]
    return (replace(works[0], swept=tuple(swept)), *works[1:])


def _with_folders_of_all(found: Sequence[Execution]) -> Execution:
    own = (folder for one in found for folder in one.plugin_folders)
    merged: dict[str, Any] = {"plugin_folders": tuple(dict.fromkeys(own))}
    for field, option in (("data_folders", DATA_FOLDER), ("model_folders", "--model-folder")):
        folders = merged[field] = dict[str, Path]()
        for name, folder in (pair for one in found for pair in getattr(one, field).items()):
            if folders.setdefault(name, folder) != folder:
                raise SpecError(
                    option,
                    f"{name}={folders[name]} and {name}={folder} in the studies' last runs",
                    "one folder for each name",
                    "compute these studies in separate runs",
                )
    return found[0].model_copy(update=merged)


def _checked(request: Request, options: RunOptions, store: Store) -> Work:
    execution = request.execution
    wanted, look = select_cells(request.plan, options.select), None
    require_work(request.plan, request.where)
    check_plugin_changes(wanted, execution, accept=options.accept_plugin_change)
    if (looks := request.plan.study.looks) and not options.select and not options.budget:
        look = next_look(looks, store.studies.looks(request.plan.to_json()))
        wanted = up_to_look(wanted, look) if look else wanted
    folders = folders_of(execution.model_dump(mode="json"))
    states = inspect(wanted, store, folders, retry_failed=options.retry_failed)
    require_models(wanted, states, execution)
    chosen: Iterable[str] = ()
    if options.budget:
        blocks = within_budget(wanted, states, execution, options.budget)
        wanted, chosen = blocks.plan, blocks.lines()
    return Work(request, wanted, states, chosen=tuple(chosen), look=look)


def _saved(work: Work, store: Store) -> Work:
    request, name = work.request, work.request.plan.study.study
    notes = []
    if (before := store.studies.source(name)) not in (None, request.where):
        notes.append(
            f"note: study {name!r} was last planned from {before}, but is now planned from"
            f" {request.where}. To see the results of both, give them different names."
        )
    if note := compare_with_lock(request, store):
        notes.append(note)
    plan = request.plan.to_json()
    if "looks" in plan and store.studies.has_other_looks(plan):
        notes.append(
            "note: hypothesis, expectations or looks have changed since the last look;"
            " earlier looks do not count"
        )
    store.studies.save_plan(name, {**plan, "arguments": request.arguments()}, request.where)
    return replace(work, notes=tuple(notes))
