"""`lce lock`: write a study's step ids to a file beside it, and list changes since then.

The lock of FOLDER/study.yaml is FOLDER/study.lock. If several studies share a folder, as the
shipped ones do, the lock of FOLDER/mine.yaml may be FOLDER/mine.lock, which has priority.
"""

from __future__ import annotations

import uuid
from collections import Counter
from pathlib import Path

from flows.request import Request, compile_request
from flows.settings import is_file, shipped_studies, study_path
from flows.terminal import say
from lce_core.errors import DataError, SpecError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store
from lce_core.store.odd_files import open_file
from lce_core.store.study_folders import LOCK
from lce_core.study.lock import MAX_CHARS, Lock, lock_of
from lce_core.study.plan_diff import LockChange, lock_changes

SHOWN_FIELDS = 3


def lock_file(study: str) -> Path:
    """Return the path of a study's lock, whether or not the file exists."""
    path = study_path(study)
    own = path.with_suffix(".lock")
    return own if study in shipped_studies() or own.is_file() else path.with_name(LOCK)


def write_lock(study: str, execution: Execution, file: Path | None) -> Path:
    """Write the ids of the study's steps to its lock, and return the lock's path.

    If the store exists, also write a copy there: `lce gc` keeps what a lock names.

    Raises:
      SpecError: if the file is another study's lock or cannot be written. Also if it holds ids of
        steps whose data is missing here; the file then stays as it is.
      DataError: if the file exists and is no lock.
    """
    path = file or lock_file(study)
    request = compile_request(study, execution)
    if is_file(path):
        _keep_what_waits(path, read_lock(path, request.plan.study.study), request)
    lock = lock_of(request.plan)
    try:
        _replace(path, lock.text())
    except OSError as error:
        raise SpecError(
            f"{path}",
            error.strerror or str(error),
            "a place that can be written to",
            "name another file with --file",
        ) from None
    if execution.home.is_dir():
        Store(execution.home).studies.keep_lock(lock.study, lock.text())
    kinds = Counter(step.kind for step in lock.steps.values())
    counted = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    say(f"{path}: {len(lock.steps):,} ids ({counted or 'none'})")
    if without := sum(cell.step is None for cell in request.plan.cells):
        say(f"{without:,} cells have no id here: `lce plan {study}` gives the reasons")
    return path


def check_lock(study: str, execution: Execution, file: Path | None) -> bool:
    """Print the ids that differ between study and lock, and why; return True if none does.

    Raises:
      SpecError: if there is no lock, or it belongs to another study.
      DataError: if the file is no lock.
    """
    path = file or lock_file(study)
    request = compile_request(study, execution)
    if not is_file(path):
        raise SpecError(
            f"{path}",
            "no such file",
            "the study's lock",
            f"write it with `lce lock {study}`, or name it with --file",
        )
    lock = read_lock(path, request.plan.study.study)
    found, unchecked = lock_changes(lock, request.plan)
    for change in found:
        say(_line(change))
    say(_summary(path, found, len(lock.steps)))
    if unchecked:
        say(f"{unchecked:,} compared but for digests: their data are not here")
    return not found


def read_lock(path: Path, study: str) -> Lock:
    """Read the lock of `study` from a file.

    Raises:
      SpecError: if it belongs to another study.
      DataError: if it is no lock, or cannot be read.
    """
    try:
        with open_file(path) as file:
            text = file.read(MAX_CHARS + 1).decode()
    except (OSError, UnicodeDecodeError) as error:
        text = f"{error}"
    lock = Lock.parse(text, str(path))
    if lock.study != study:
        raise SpecError(
            f"{path}",
            f"the lock of study {lock.study!r}",
            f"that of {study!r}",
            f"name another file with --file, such as {study}.lock",
        )
    return lock


def meet_lock(request: Request, store: Store) -> str | None:
    """Save a copy of the study's lock in the store, and compare the study with it.

    Returns:
      A note for the user if the study's ids differ from the lock, or the lock cannot be read. None
      if they agree, there is no lock, or the file locks another study.
    """
    path = lock_file(request.study)
    if not is_file(path):
        return None
    try:
        lock = read_lock(path, request.plan.study.study)
    except SpecError:  # the lock of another study in the same folder
        return None
    except DataError as error:
        return f"note: {error}"
    store.studies.keep_lock(lock.study, lock.text())
    found, _ = lock_changes(lock, request.plan)
    if not found:
        return None
    return f"note: {_summary(path, found, len(lock.steps))}; `lce lock --check` lists them"


def _keep_what_waits(path: Path, old: Lock, request: Request) -> None:
    waiting = {(step.kind, step.name) for step in request.plan.expected.values()}
    waiting -= {(step.kind, step.name) for step in request.plan.steps.values()}
    if lost := [step for step in old.steps.values() if (step.kind, step.name) in waiting]:
        raise SpecError(
            f"{path}",
            f"{len(lost):,} ids of steps whose data are not here ({lost[0].name})",
            "data for every step that is locked",
            "give --data-folder as in the run; to lock only what is here, remove the file first",
        )


def _line(change: LockChange) -> str:
    where = f"{change.sign} {change.kind} {change.name}"
    if change.sign != "~":
        return f"{where}  {change.old or change.new or '(data not here)'}"
    fields = list(change.fields[:SHOWN_FIELDS]) or ["no field of the spec: ids are made otherwise"]
    if (more := len(change.fields) - SHOWN_FIELDS) > 0:
        fields.append(f"and {more} more")
    return f"{where}  {change.old} -> {change.new or '(data not here)'}  {'; '.join(fields)}"


def _summary(path: Path, found: list[LockChange], locked: int) -> str:
    if not found:
        return f"{path}: all {locked:,} ids as locked"
    signs: Counter[str] = Counter(change.sign for change in found)
    counts = ", ".join(
        f"{signs[sign]:,} {word}"
        for sign, word in (("~", "moved"), ("-", "gone"), ("+", "new"))
        if signs[sign]
    )
    return f"{path}: {counts} of {locked:,} ids"


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    finally:
        aside.unlink(missing_ok=True)
