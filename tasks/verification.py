"""Recompute finished cells in a temporary store, with the same kind of workers as in a run.

It contains only links to the cells' parents and to the models, so that prompts are built again, and
the results and failures of the study stay untouched.
"""

import contextlib
import shutil
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from lce_core.errors import SpecError, WorkerLostError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.lease import Lease
from lce_core.store.odd_files import make_folder
from lce_core.store.records import Record
from lce_core.store.steps import Step
from lce_core.store.verification import VERIFICATIONS
from lce_core.study.step_kinds import kind_named
from tasks.worker_process import Event
from tasks.workers import Pool

LEASE = "verification"


@dataclass(frozen=True)
class Recomputed:
    """A recomputed step, or the reason why it could not be recomputed."""

    step: Step
    folder: Path
    """The new artifact's folder; missing if `record` is None."""
    record: Record | None
    error: str | None = None


@contextlib.contextmanager
def home_aside(store: Store) -> Iterator[Store]:
    """Yield a temporary store in a subfolder, and remove it at the end; one process at a time."""
    lease = Lease.acquire(store.home / "leases", LEASE)
    if lease is None:
        raise SpecError(
            f"{store.home}",
            "another process that is verifying this store",
            "one verification of a store at a time",
            "wait until the other `lce verify` has finished",
        )
    with lease:
        folder = make_folder(store.home / VERIFICATIONS) / ".aside"
        shutil.rmtree(folder, ignore_errors=True)  # left by a verification that was killed
        aside = Store(folder)
        aside.prepare()
        try:
            yield aside
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def compute_again(
    steps: Sequence[Step], store: Store, aside: Store, execution: Execution
) -> Generator[Recomputed, None, None]:
    """Recompute steps in `aside`, those that share a model one after the other in one worker."""
    for parent in (parent for step in steps for parent in step.parents.values()):
        if folder := store.find(parent):
            link = aside.home / "artifacts" / folder.parent.name / folder.name
            link.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(FileExistsError):
                link.symlink_to(folder)
    if store.models.is_dir():
        aside.models.symlink_to(store.models)
    logs = make_folder(store.home / "logs")  # the error of a dead worker names a log here
    (aside.home / "logs").symlink_to(logs)
    pool = Pool(execution.model_copy(update={"home": aside.home})).open(trains=False)
    threads = ThreadPoolExecutor(pool.slots.counts.evaluation)
    try:
        ordered = sorted(steps, key=_unit)
        units = [list(group) for _, group in groupby(ordered, key=_unit)]
        for unit, ended in zip(units, threads.map(lambda one: _run(pool, one), units), strict=True):
            for step in unit:
                event = ended.get(step.fingerprint, {"message": "the worker ended early"})
                record = aside.record(step)
                error = None if record else str(event.get("message"))
                yield Recomputed(step, aside.path(step), record, error)
    finally:
        threads.shutdown(wait=False, cancel_futures=True)
        pool.close()  # closing the workers ends running steps
        threads.shutdown()


def _unit(step: Step) -> str:
    return repr(kind_named(step.kind).unit(step))


def _run(pool: Pool, unit: Sequence[Step]) -> dict[str, Event]:
    slot = pool.claim(unit[0].kind)
    assert slot is not None, "there are as many threads as slots"
    try:
        ended = pool.run(slot, unit, lambda _: None)
    except WorkerLostError as error:
        return {step.fingerprint: {"message": str(error)} for step in unit}
    finally:
        pool.slots.release(slot)
    return {event["fingerprint"]: event for event in ended}
