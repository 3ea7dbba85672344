"""`lce lock`: write the ids of a study's steps to a lock file, and list ids that changed since.

A step's id is a hash of everything its result depends on. The lock of FOLDER/mine.yaml is
FOLDER/mine.lock if that file exists or the study is a shipped one, else FOLDER/study.lock.
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
"""Changed fields that `lce lock --check` prints for a step; it counts the others."""


def lock_file(study: str) -> Path:
    """Return the path of the study's lock file, which may not exist yet."""
    path = study_path(study)
    own = path.with_suffix(".lock")
    return own if study in shipped_studies() or own.is_file() else path.with_name(LOCK)


def write_lock(study: str, execution: Execution, file: Path | None) -> Path:
    """Write the ids of the study's steps to its lock file, print a summary, and return the path.

    If the store exists, also save a copy there: `lce gc` keeps the artifacts that a lock names.

    Args:
      study: name of a shipped study, or path of a study file.
      execution: settings of the computation; its data folders decide which steps have an id.
      file: the lock file; None for the default of `lock_file`.

    Raises:
      SpecError: if the file is another study's lock or cannot be written. Also if the present lock
        has ids of steps whose input data is missing on this machine: rewriting would lose them.
      DataError: if the file exists but is no lock.
    """
    path = file or lock_file(study)
    request = compile_request(study, execution)
    if is_file(path):
        _require_data_of_locked(path, read_lock(path, request.plan.study.study), request)
    lock = lock_of(request.plan)
    try:
        _replace(path, lock.text())
    except OSError as error:
        raise SpecError(
            f"{path}",
            error.strerror or str(error),
            "a file that this user can write",
            "name another file with --file",
        ) from None
    if execution.home.is_dir():
        Store(execution.home).studies.keep_lock(lock.study, lock.text())
    kinds = Counter(step.kind for step in lock.steps.values())
    counted = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    say(f"{path}: {len(lock.steps):,} ids ({counted or 'none'})")
    if without := sum(cell.step is None for cell in request.plan.cells):
        say(f"{without:,} cells have no id on this machine: `lce plan {study}` gives the reasons")
    return path


def check_lock(study: str, execution: Execution, file: Path | None) -> bool:
    """Print the step ids that differ from the lock, and why; return True if all are equal.

    Raises:
      SpecError: if the lock file is missing or belongs to another study.
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
        say(f"{unchecked:,} steps compared without data digests: their data is not on this machine")
    return not found


def read_lock(path: Path, study: str) -> Lock:
    """Read the lock of the study named `study` from a file.

    Raises:
      SpecError: if the file locks another study.
      DataError: if the file is no lock, or cannot be read.
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
            f"the lock of study {study!r}",
            f"name another file with --file, such as {study}.lock",
        )
    return lock


def meet_lock(request: Request, store: Store) -> str | None:
    """Save a copy of the study's lock in the store, and compare the study's step ids with it.

    The copy makes `lce gc` keep the locked artifacts. A run calls this before it starts.

    Returns:
      A note for the user if ids differ from the lock, or the lock cannot be read. None if all ids
      are equal, the study has no lock, or the file locks another study.
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


def _require_data_of_locked(path: Path, old: Lock, request: Request) -> None:
    """Raise SpecError if `old` locks steps that now have no id, because their data is missing."""
    waiting = {(step.kind, step.name) for step in request.plan.expected.values()}
    waiting -= {(step.kind, step.name) for step in request.plan.steps.values()}
    if lost := [step for step in old.steps.values() if (step.kind, step.name) in waiting]:
        raise SpecError(
            f"{path}",
            f"{len(lost):,} ids of steps whose data is not on this machine ({lost[0].name})",
            "the data of every locked step",
            "give --data-folder as in the run; to lock only the other steps, remove the file first",
        )


def _line(change: LockChange) -> str:
    where = f"{change.sign} {change.kind} {change.name}"
    if change.sign != "~":
        return f"{where}  {change.old or change.new or '(data missing)'}"
    fields = list(change.fields[:SHOWN_FIELDS]) or [
        "no field differs: ids are computed differently"
    ]
    if (more := len(change.fields) - SHOWN_FIELDS) > 0:
        fields.append(f"and {more} more")
    return f"{where}  {change.old} -> {change.new or '(data missing)'}  {'; '.join(fields)}"


def _summary(path: Path, found: list[LockChange], locked: int) -> str:
    if not found:
        return f"{path}: all {locked:,} ids are as locked"
    signs: Counter[str] = Counter(change.sign for change in found)
    counts = ", ".join(
        f"{signs[sign]:,} {word}"
        for sign, word in (("~", "changed"), ("-", "removed"), ("+", "new"))
        if signs[sign]
    )
    return f"{path}: {counts} of {locked:,} ids"


def _replace(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
