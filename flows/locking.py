"""`lce lock`: write the ids of a study's steps to a lock file, or list ids that have changed since.

The lock file of FOLDER/mine.yaml is FOLDER/mine.lock if that file exists, else FOLDER/study.lock.
The lock file of a shipped study NAME is always NAME.lock, beside the study's file.
"""

import uuid
from collections import Counter
from pathlib import Path

from flows.request import Request, compile_request, found_by_name
from flows.settings import is_file, shipped_studies, study_path
from flows.terminal import say
from lce_core.errors import DataError, SpecError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.study_folders import LOCK
from lce_core.study.lock import Lock, lock_of
from lce_core.study.plan_diff import LockChange, lock_changes


def lock_file(study: str) -> Path:
    path = study_path(study)
    own = path.with_suffix(".lock")
    return own if study in shipped_studies() or own.is_file() else path.with_name(LOCK)


def write_lock(study: str, execution: Execution, file: Path | None) -> Path:
    """Write the ids of the study's steps to its lock file, print a summary, and return the path.

    If the store exists, also copy the lock there, so that `lce gc` keeps the locked artifacts. A
    step has an id only if its input data is in one of the data folders of `execution`.
    """
    study, execution = found_by_name(study, execution)
    path = file or lock_file(study)
    request = compile_request(study, execution)
    if is_file(path):
        _require_data_of_locked(path, read_lock(path, request.plan.study.study), request)
    lock = lock_of(request.whole)
    try:
        _replace(path, lock.text())
    except OSError as error:
        raise SpecError(
            f"{path}",
            f"a file that cannot be written ({error.strerror or error})",
            "a lock file that you can write",
            "give another path with --file",
        ) from None
    if execution.home.is_dir():
        Store(execution.home).studies.keep_lock(lock.study, lock.text())
    kinds = Counter(step.kind for step in lock.steps.values())
    counted = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    say(f"{path}: {len(lock.steps):,} ids ({counted or 'none'})")
    if without := sum(cell.step is None for cell in request.whole.cells):
        say(f"{without:,} cells have no id on this machine: `lce plan {study}` gives the reasons")
    return path


def check_lock(study: str, execution: Execution, file: Path | None) -> bool:
    """Print each step whose id differs from the lock, and why; return True if none differs."""
    study, execution = found_by_name(study, execution)
    path = file or lock_file(study)
    request = compile_request(study, execution)
    if not is_file(path):
        raise SpecError(
            f"{path}",
            "no such file",
            f"the lock file of study {study}",
            f"write the lock with `lce lock {study}`, or give its path with --file",
        )
    lock = read_lock(path, request.plan.study.study)
    changes, unchecked = lock_changes(lock, request.whole)
    for change in changes:
        say(_line(change))
    say(_summary(path, changes, len(lock.steps)))
    if unchecked:
        say(
            f"{unchecked:,} steps were compared without the digests of their data, which is not on"
            " this machine"
        )
    return not changes


def read_lock(path: Path, study: str) -> Lock:
    lock = Lock.read(path)
    if lock.study != study:
        raise SpecError(
            f"{path}",
            f"the lock of study {lock.study!r}",
            f"the lock of study {study!r}",
            f"give another path with --file, such as {study}.lock",
        )
    return lock


def compare_with_lock(request: Request, store: Store) -> str | None:
    """Compare a study's step ids with its lock file, and copy the lock to the store.

    The copy makes `lce gc` keep the locked artifacts. Returns a note for the user if ids differ
    from the lock, or if the lock cannot be read.
    """
    path = lock_file(request.study)
    if not is_file(path):
        return None
    try:
        lock = read_lock(path, request.plan.study.study)
    except SpecError:  # study.lock belongs to another study in the same folder
        return None
    except DataError as error:
        return f"note: {error}"
    store.studies.keep_lock(lock.study, lock.text())
    changes, _ = lock_changes(lock, request.whole)
    if not changes:
        return None
    return f"note: {_summary(path, changes, len(lock.steps))}; `lce lock --check` lists them"


def _require_data_of_locked(path: Path, old: Lock, request: Request) -> None:
    """Refuse to drop a step of `old` that has no id because its data is missing."""
    missing = {(step.kind, step.name) for step in request.whole.expected.values()}
    missing -= {(step.kind, step.name) for step in request.whole.steps.values()}
    if lost := [step for step in old.steps.values() if (step.kind, step.name) in missing]:
        raise SpecError(
            f"{path}",
            f"{len(lost):,} locked steps whose data is not on this machine (first: {lost[0].name})",
            "the data of every locked step, because the new lock would lack these ids",
            "give --data-folder as for a run, or delete the file to lock only the other steps",
        )


def _line(change: LockChange) -> str:
    step = f"{change.sign} {change.kind} {change.name}"
    if change.sign != "~":
        return f"{step}  {change.old or change.new or '(data missing)'}"
    fields = list(change.fields[:3]) or [
        "no field differs: another version of lce computes another id"
    ]
    if (more := len(change.fields) - 3) > 0:
        fields.append(f"and {more} more")
    return f"{step}  {change.old} -> {change.new or '(data missing)'}  {'; '.join(fields)}"


def _summary(path: Path, changes: list[LockChange], locked: int) -> str:
    if not changes:
        return f"{path}: all {locked:,} ids are unchanged"
    signs: Counter[str] = Counter(change.sign for change in changes)
    counts = ", ".join(
        f"{signs[sign]:,} {word}"
        for sign, word in (("~", "changed"), ("-", "removed"), ("+", "new"))
        if signs[sign]
    )
    return f"{path}: {counts} ids ({locked:,} are locked)"


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
