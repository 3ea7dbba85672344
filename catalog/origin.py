"""What a catalog was built from, noted beside it, so that an unchanged store is not read again.

The note holds a digest of everything a build looks at, taken before it looks, and the sha256 of the
catalog that came out. A catalog is current if both are as noted: whatever was added, changed or
lost in the store, and whatever happened to the file, makes it outdated. A lost note costs a build.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from lce_core.store.artifacts import Store
from lce_core.store.identity import sha256_file
from lce_core.store.records import RECORD, Record, write_json

_CODE = (Path(__file__).parent, Path(__file__).parents[1] / "lce_core")
"""Folders whose own files decide what a build makes of a store."""
_LIBRARIES = ("duckdb", "pyarrow", "pydantic")


def state_digest(store: Store) -> str:
    """sha256 over all that a build would look at: 64 hex digits.

    Plans, records and failures count by their content, the files that records name by size and
    times, and the code of the build by its source.
    """
    digest = hashlib.sha256()
    for part in (*_code(), *_contents(store.home), *_artifacts(store.home / "artifacts")):
        digest.update(repr(part).encode())
    return digest.hexdigest()


def is_current(catalog: Path, state: str) -> bool:
    """Whether the file is the one that was built from a store in this state."""
    try:
        noted = json.loads(_note(catalog).read_text(encoding="utf-8"))
        return bool(noted == _content(catalog, state))
    except (OSError, ValueError):
        return False


def note_origin(catalog: Path, state: str) -> None:
    """Remembers that the file was built from a store in this state."""
    with contextlib.suppress(OSError):  # without a note the next call builds again
        write_json(_note(catalog), _content(catalog, state))


def _note(catalog: Path) -> Path:
    return catalog.with_name(f".{catalog.name}.origin.json")


def _content(catalog: Path, state: str) -> dict[str, str]:
    return {"store": state, "sha256": sha256_file(catalog)}


def _code() -> Iterator[tuple[str, str]]:
    for folder in _CODE:
        for path in sorted((*folder.rglob("*.py"), *folder.rglob("*.sql"))):
            yield path.relative_to(folder).as_posix(), sha256_file(path)
    for name in _LIBRARIES:
        yield name, importlib.metadata.version(name)


def _contents(home: Path) -> Iterator[tuple[str, str | None]]:
    """Plans and failures; plans are written anew by every run, so their times say nothing."""
    for path in sorted((*home.glob("studies/*/plan.json"), *home.glob("failures/*.json"))):
        yield path.relative_to(home).as_posix(), _sha256(_read(path))


def _artifacts(folder: Path) -> Iterator[tuple[object, ...]]:
    """Artifacts in the order of their names, also those without a readable record."""
    for kind in _folders(folder):
        for artifact in _folders(kind):
            content = _read(artifact / RECORD)
            files = [(name, *_times(artifact / name)) for name in _named(content)]
            yield kind.name, artifact.name, _sha256(content), files


def _folders(folder: Path) -> list[Path]:
    # Unfinished attempts, which begin with a dot, are no artifacts and change all the time.
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = sorted(e.name for e in entries if not e.name.startswith(".") and e.is_dir())
        return [folder / name for name in names]
    return []


def _named(content: bytes | None) -> Iterable[str]:
    try:
        files: Mapping[str, object] = Record.model_validate_json(content or b"").files
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
        return path.read_bytes()
    except OSError:
        return None


def _sha256(content: bytes | None) -> str | None:
    return None if content is None else hashlib.sha256(content).hexdigest()
