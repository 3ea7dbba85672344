"""What a projection of the store was made from, noted beside it, so that it is not made again.

The note holds digests by name: one of everything that making it looks at, taken before it looks. A
projection is current if that is as noted: whatever was added, changed or lost in the store makes it
outdated, and so does other code. A lost note costs making it once more. The catalog, which shows
the whole store, and MLflow, which shows one study at a time, both ask here.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from lce_core.store.artifacts import Store
from lce_core.store.identity import sha256_file
from lce_core.store.odd_files import read_file
from lce_core.store.planned import PLAN, read_plan
from lce_core.store.records import RECORD, Record
from lce_core.store.verification import VERIFICATIONS


@dataclass(frozen=True)
class Maker:
    """The code that decides what becomes of a store in a projection."""

    folders: tuple[Path, ...]
    """Of our own source."""
    libraries: tuple[str, ...]


def state_digest(store: Store, maker: Maker, study: str | None = None) -> str:
    """sha256 over all that making a projection would look at: 64 hex digits.

    Plans, records and failures count by their content, the files that records name by size and
    times, the code by its source.

    Args:
      store: what is projected.
      maker: the code that does.
      study: look only at this study's plan and at the artifacts that it names.
    """
    shown = _all(store.home) if study is None else _of_study(store.home, study)
    digest = hashlib.sha256()
    for part in (*_code(maker), *shown):
        digest.update(repr(part).encode())
    return digest.hexdigest()


def _code(maker: Maker) -> Iterator[tuple[str, str]]:
    for folder in maker.folders:
        kinds = ("*.py", "*.sql", "*.csv")
        for path in sorted(path for kind in kinds for path in folder.rglob(kind)):
            yield path.relative_to(folder).as_posix(), sha256_file(path)
    for name in maker.libraries:
        yield name, importlib.metadata.version(name)


def _all(home: Path) -> Iterator[tuple[object, ...]]:
    looked_at = ("studies/*/plan.json", "failures/*.json", f"{VERIFICATIONS}/*.json")
    for path in sorted(path for pattern in looked_at for path in home.glob(pattern)):
        # Plans are written anew by every run, so their times say nothing.
        yield path.relative_to(home).as_posix(), _sha256(_read(path))
    for kind in _folders(home / "artifacts"):
        for artifact in _folders(kind):
            yield f"{kind.name}/{artifact.name}", *_artifact(artifact)


def _of_study(home: Path, study: str) -> Iterator[tuple[object, ...]]:
    file = home / "studies" / study / PLAN
    yield study, _sha256(_read(file))
    with contextlib.suppress(OSError, ValueError):  # without a plan nothing is shown
        plan = read_plan(file)
        for planned in (*plan["cells"], *plan["trainings"]):
            if (folder := planned["folder"]) is not None:
                yield folder, *_artifact(home / "artifacts" / folder)


def _artifact(folder: Path) -> tuple[str | None, list[tuple[object, ...]]]:
    """An artifact may be without a readable record, or not be there."""
    content = _read(folder / RECORD)
    return _sha256(content), [(name, *_times(folder / name)) for name in _named(content)]


def _folders(folder: Path) -> list[Path]:
    # Unfinished attempts, which begin with a dot, are no artifacts and change all the time.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
        return [folder / name for name in names]
    return []


def _named(content: bytes | None) -> Iterable[str]:
    if content is None:
        return ()
    try:
        files: Mapping[str, object] = Record.parse(content).files
    except ValueError:
        return ()
    return files


def _times(path: Path) -> tuple[int, ...]:
    try:
        found = path.stat()
    except OSError:
        return ()
    # The time of change too: a file's content can be changed and its other time set back.
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns


def _read(path: Path) -> bytes | None:
    try:
        return read_file(path)
    except OSError:
        return None


def _sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
