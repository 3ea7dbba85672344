"""Compute a digest that tells if the catalog or a study's MLflow runs are current, and note it.

Both are built from the store. A note, a JSON file beside each of them, contains a digest of all its
inputs, computed before the inputs are read. The catalog or the runs are current while a new digest
equals the noted one. Any addition, change or loss in the store changes the digest, and so does
changed code. A lost note costs one rebuild. The catalog's digest covers the whole store, the digest
of MLflow runs only their study.
"""

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lce_core.store.artifacts import Store
from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import read_file, read_mapping
from lce_core.store.records import RECORD, Record, write_json
from lce_core.store.study_folders import EXPECTATIONS, LOOKS, PLAN, read_plan
from lce_core.store.verification import VERIFICATIONS


@dataclass(frozen=True)
class Maker:
    """The code that builds the catalog or MLflow's runs from a store; part of the digest."""

    folders: tuple[Path, ...]
    """Source folders of this project, hashed by content."""
    libraries: tuple[str, ...]
    """Distribution names of libraries, hashed by version."""


def state_digest(store: Store, maker: Maker, study: str | None = None) -> str:
    """Return the sha256 of everything that the catalog (or MLflow) is built from, in hex.

    Plans, expectations, records and failures are hashed by content, the files that records name by
    size and times, and the code by its source. With `study`, only this study's plan and the
    artifacts that it names count.
    """
    shown = _all(store.home) if study is None else _of_study(store, study)
    digest = hashlib.sha256()
    for part in (*_code(maker), *shown):
        digest.update(repr(part).encode())
    return digest.hexdigest()


def noted(note: Path) -> dict[str, str]:
    """Return the digests in a note, by name; {} if the file is missing or unreadable."""
    try:
        return read_mapping(note)
    except (OSError, ValueError):
        return {}


def add_to_note(note: Path, digests: Mapping[str, str]) -> None:
    """Add digests to a note and keep its entries with other names; ignore a failure to write."""
    with contextlib.suppress(OSError):  # without a note the next call builds again
        write_json(note, {**noted(note), **digests})


def _code(maker: Maker) -> Iterator[tuple[str, str]]:
    for folder in maker.folders:
        kinds = ("*.py", "*.sql", "*.csv", "*.yaml")
        for path in sorted(path for kind in kinds for path in folder.rglob(kind)):
            yield path.relative_to(folder).as_posix(), sha256_file(path)
    for name in maker.libraries:
        yield name, importlib.metadata.version(name)


def _all(home: Path) -> Iterator[tuple[object, ...]]:
    plans = (f"studies/*/{name}" for name in (PLAN, EXPECTATIONS, LOOKS))
    patterns = (*plans, "failures/*.json", f"{VERIFICATIONS}/*.json")
    for path in sorted(path for pattern in patterns for path in home.glob(pattern)):
        # Every run rewrites its plan, so hash the content and not the modification time.
        yield path.relative_to(home).as_posix(), _sha256(_read(path))
    for kind in _folders(home / "artifacts"):
        for artifact in _folders(kind):
            yield f"{kind.name}/{artifact.name}", *_artifact(artifact)


def _of_study(store: Store, study: str) -> Iterator[tuple[object, ...]]:
    file, listing = store.home / "studies" / study / PLAN, store.listing()
    beside = (file.with_name(name) for name in (EXPECTATIONS, LOOKS))
    yield study, _sha256(_read(file)), *(_sha256(_read(one)) for one in beside)
    with contextlib.suppress(OSError, ValueError):  # a study without a plan has no artifacts here
        plan = read_plan(file)
        for planned in (*plan["cells"], *plan["trainings"]):
            if (folder := planned["folder"]) is not None:
                yield folder, *_artifact(store.artifact(folder, listing))


def _artifact(folder: Path) -> tuple[str | None, list[tuple[object, ...]]]:
    """Return the sha256 of an artifact's record, and name, size and times of each of its files."""
    content = _read(folder / RECORD)
    return _sha256(content), [(name, *_times(folder / name)) for name in _named(content)]


def _folders(folder: Path) -> list[Path]:
    # Skip unfinished attempts: their names start with a dot, and they change constantly.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
        return [folder / name for name in names]
    return []


def _named(content: bytes | None) -> Iterable[str]:
    try:
        return () if content is None else Record.parse(content).files
    except ValueError:
        return ()


def _times(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    # Include ctime: after a change of content a program can reset mtime, but not ctime.
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except OSError:
        return None


def _sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
