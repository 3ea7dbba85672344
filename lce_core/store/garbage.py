"""Remove what no study needs (`lce gc`), and what killed processes left (every run, `sweep`).

`lce gc` keeps the roots, which a plan or lock names, and the artifacts from which the roots were
computed. It refuses to start while any process computes a step. Before it deletes artifacts, it
gives them the names of unfinished attempts, so that the next `lce run` or `lce gc` deletes the rest
if this one is killed.
"""

import contextlib
import os
import re
import stat
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lce_core.errors import SpecError
from lce_core.store.artifacts import ATTEMPT, Store
from lce_core.store.identity import ID_DIGITS
from lce_core.store.lease import holders, is_held, locked
from lce_core.store.odd_files import make_folder, remove
from lce_core.store.parts import PART_LEASES
from lce_core.store.records import Record
from lce_core.store.steps import closure

_NAMED = re.compile(rf".+-[0-9a-f]{{{ID_DIGITS}}}")


@dataclass(frozen=True)
class Roots:
    """The artifacts to keep, along with those from which they were computed."""

    ids: Collection[str] = ()
    places: tuple[Mapping[str, Any], ...] = ()
    """Axes (method, seed, length, ...) of planned cells with unknown ids, as their data is missing.
    An artifact is kept if its values equal those of one of these cells on all axes that it has."""

    def include(self, step_id: str, axes: Mapping[str, Any]) -> bool:
        return step_id in self.ids or any(_agree(axes, one) for one in self.places)


@dataclass(frozen=True)
class Garbage:
    """A file or folder that `lce gc` removes."""

    path: Path
    what: str
    """artifact, attempt (unfinished artifact), progress, failure or prompts."""
    bytes: int
    """Disk space freed; 0 for a file with a hard link outside the removed files."""
    why: str


def find_garbage(store: Store, roots: Roots, prompt_bytes: int) -> list[Garbage]:
    """Return what `collect_garbage` would remove; of prompts the oldest beyond `prompt_bytes`."""
    artifacts, records = _holdings(store)
    needed = _needed(artifacts, records, roots)
    found = [
        Garbage(folder, "artifact", 0, "no plan or lock needs it")
        for step_id, folders in artifacts.items()
        if step_id not in needed
        for folder in folders
    ]
    found += [
        Garbage(folder, "attempt", 0, "its process is dead") for folder in _dead_attempts(store)
    ]
    found += _of_steps(store, records.keys(), needed, roots)
    found += _prompts(store, prompt_bytes)
    return _sized(sorted(found, key=lambda one: one.path))


def collect_garbage(store: Store, roots: Callable[[], Roots], prompt_bytes: int) -> list[Garbage]:
    """Remove what `find_garbage` finds and return it; refuse if a live process is computing a step.

    `roots` is called under the lock of the leases, so that no step can start meanwhile.
    """
    leases, renamed = store.home / "leases", []
    make_folder(leases)
    with locked(leases):
        living = sorted(holders(leases))
        if living:
            raise SpecError(
                f"{leases}",
                f"{len(living)} leases of running processes, such as {', '.join(living[:3])}",
                "a store in which no process is computing a step",
                "wait for these runs (see `lce status`), or stop them, then run `lce gc` again",
            )
        garbage = find_garbage(store, roots(), prompt_bytes)
        for one in garbage:
            if one.what == "artifact":
                aside = one.path.with_name(f"{ATTEMPT}garbage-{uuid.uuid4().hex[:8]}")
                one.path.rename(aside)
                renamed.append(aside)
            else:
                remove(one.path)
    for aside in renamed:  # outside the lock, because deleting gigabytes of weights is slow
        remove(aside)
    return garbage


def _dead_attempts(store: Store) -> list[Path]:
    leases, attempts = store.home / "leases", sorted(store.home.glob(f"artifacts/*/{ATTEMPT}*"))
    ids = (attempt.name.removeprefix(ATTEMPT).split("-")[0] for attempt in attempts)
    return [attempt for attempt, one in zip(attempts, ids, strict=True) if not is_held(leases, one)]


def _holdings(store: Store) -> tuple[dict[str, list[Path]], dict[str, Record]]:
    """Return artifact folders and readable records by id."""
    folders: dict[str, list[Path]] = {}
    records = {}
    for folder in sorted(store.home.glob("artifacts/*/*")):
        if folder.name.startswith(".") or not _NAMED.fullmatch(folder.name):
            continue  # not written by a store
        step_id = folder.name[-ID_DIGITS:]
        folders.setdefault(step_id, []).append(folder)
        if record := Record.find(folder):
            records[step_id] = record
    return folders, records


def _needed(ids: Iterable[str], records: Mapping[str, Record], roots: Roots) -> set[str]:
    def parents(step_id: str) -> list[str]:
        record = records.get(step_id)
        return [parent[:ID_DIGITS] for parent in record.parents.values()] if record else []

    kept = [
        step_id
        for step_id in ids
        if roots.include(step_id, records[step_id].axes if step_id in records else {})
    ]
    return closure(kept, parents)


def _agree(axes: Mapping[str, Any], place: Mapping[str, Any]) -> bool:
    return all(axes[name] == place[name] for name in place if axes.get(name) is not None)


def _of_steps(
    store: Store, stored: Collection[str], needed: set[str], roots: Roots
) -> Iterator[Garbage]:
    for folder in store.home.glob("progress/*"):
        if folder.name in stored and store.has_finished(folder.name):
            yield Garbage(folder, "progress", 0, "its step is finished")
        elif not (folder.name in roots.ids or roots.places):
            yield Garbage(folder, "progress", 0, "no plan or lock needs its step")
    notes = store.failures.all()
    for file in store.home.glob("failures/*.json"):
        if file.stem in stored and file.stem in needed:
            yield Garbage(file, "failure", 0, "its step has finished since")
        elif not roots.include(file.stem, notes.get(file.stem, {}).get("axes", {})):
            yield Garbage(file, "failure", 0, "no plan or lock needs its step")


def _prompts(store: Store, most: int) -> Iterator[Garbage]:
    states = {file: file.lstat() for file in store.prompts.glob("*.safetensors")}
    total = sum(one.st_size for one in states.values())
    for file in sorted(states, key=lambda one: states[one].st_mtime):
        if total <= most:
            break
        total -= states[file].st_size
        yield Garbage(file, "prompts", 0, "the folder of prompts is over its size limit")


def _sized(found: list[Garbage]) -> list[Garbage]:
    """Set `bytes`; those of hard-linked files count where the last link goes."""
    links: Counter[tuple[int, int]] = Counter()
    sized = []
    for one in found:
        freed = 0
        for state in _files(one.path):
            file = state.st_dev, state.st_ino
            links[file] += 1
            freed += state.st_size if links[file] == state.st_nlink else 0
        sized.append(replace(one, bytes=freed))
    return sized


def _files(path: Path) -> Iterator[os.stat_result]:
    places = [path]
    for folder, _, names in os.walk(path) if not path.is_symlink() else ():
        places += [Path(folder, name) for name in names]
    for place in places:
        with contextlib.suppress(OSError):
            state = place.lstat()
            if stat.S_ISREG(state.st_mode):
                yield state


ABANDONED_SECONDS = 3600.0
"""Live processes rename their temporary files within seconds."""
_WRITTEN_ASIDE = (
    "cache", "failures", "leases", "mlflow", "prompts", "services", "studies/*", "verifications",
)  # fmt: skip
_UNFINISHED = re.compile(r"\..+\.[0-9a-f]{8}|\.probe-.+")


def sweep(store: Store) -> list[str]:
    """Remove leftovers of dead processes; return names of removed unfinished artifacts.

    Also remove progress, leases and failures of finished steps. A step with a damaged artifact is
    unfinished: another process may be computing it again.
    """
    swept, leases = [], store.home / "leases"
    with locked(leases):
        for folder in _dead_attempts(store):
            remove(folder)
            swept.append(folder.name)
        stored, of_parts = store.listing().ids, set(leases.glob(PART_LEASES))

        def is_finished(step_id: str) -> bool:
            is_stored = step_id in stored and not is_held(leases, step_id)
            return is_stored and store.has_finished(step_id)

        for folder in sorted((store.home / "progress").glob("*")):
            if is_finished(folder.name):
                remove(folder)
        # After a step failed here, another host may have finished it: drop the old failure.
        for step_id in filter(is_finished, store.failures.all()):
            store.failures.forget(step_id)
        for lease in sorted(leases.glob("*.json")):
            is_dead_part = lease in of_parts and not is_held(leases, lease.stem)
            if is_dead_part or is_finished(lease.stem):
                remove(lease)
    _sweep_temporary_files(store)
    return swept


def _sweep_temporary_files(store: Store) -> None:
    for place in ("", *_WRITTEN_ASIDE):
        for left in store.home.glob(f"{place}/.*" if place else ".*"):
            with contextlib.suppress(OSError):  # another process may remove it first
                is_old = time.time() - left.lstat().st_mtime > ABANDONED_SECONDS
                if is_old and _UNFINISHED.fullmatch(left.name):
                    remove(left)
