"""Describe damage to an artifact, and find all damaged artifacts for `lce verify --files`.

Planning trusts cached digests of unchanged files (`lce_core.store.file_facts`). A bit flip on the
disk changes neither times nor size, so only rereading the file detects it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from lce_core.store.artifacts import Store
from lce_core.store.records import Record, SealError

CHANGED_CONTENT = "the content of a file is not what its record says"


@dataclass
class Reread:
    """Result of `reread`: numbers of artifacts and bytes that were read, and the damage found."""

    num_artifacts: int = 0
    num_bytes: int = 0
    damage: dict[Path, str] = field(default_factory=dict)
    """Description of the damage by artifact folder."""


def what_is_wrong(folder: Path) -> str | None:
    """Return the first fault of an artifact such as "weights.bin is missing", or None.

    Checks record and sizes and reads no files. Absent weights are no fault (`Record.files_in`).
    """
    try:
        record = Record.read(folder)
    except SealError:
        return "its record.json was changed after it was written"
    except (OSError, ValueError):
        return "its record.json cannot be read"
    for name, entry in record.files_in(folder).items():
        try:
            size = (folder / name).stat().st_size
        except OSError:
            return f"{name} is missing"
        if size != entry.bytes:
            return f"{name} has {size} bytes; its record says {entry.bytes}"
    return None


def reread(store: Store, report: Callable[[int, int], None]) -> Reread:
    """Read every byte of every artifact, compare digests with the records, and return the damage.

    The cache keeps new digests, even after Ctrl-C. `report` gets (bytes read, total).
    """
    found = Reread()
    folders = [
        folder for folder in sorted((store.home / "artifacts").glob("*/[!.]*")) if folder.is_dir()
    ]
    sizes = {folder: _size(folder) for folder in folders}
    total = sum(sizes.values())
    try:
        for folder in folders:
            wrong = what_is_wrong(folder) or _reread(store, folder, found, total, report)
            if not folder.is_dir():
                continue  # a concurrent run has moved the folder away
            found.num_artifacts += 1
            if wrong:
                found.damage[folder] = wrong
    finally:
        store.file_facts.save()
    return found


def _reread(
    store: Store, folder: Path, found: Reread, total: int, report: Callable[[int, int], None]
) -> str | None:
    for name, entry in Record.read(folder).files_in(folder).items():
        try:
            sha256 = store.file_facts.sha256(folder / name, fresh=True)
        except OSError as error:
            return f"{name} cannot be read ({error.strerror})"
        found.num_bytes += entry.bytes
        report(found.num_bytes, total)
        if sha256 != entry.sha256:
            return f"the content of {name} is not what its record says"
    return None


def _size(folder: Path) -> int:
    try:
        return sum(entry.bytes for entry in Record.read(folder).files_in(folder).values())
    except (OSError, ValueError):
        return 0
