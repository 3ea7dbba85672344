"""What a store holds: records by id, what is wrong with the damaged ones, and noted failures.

Records name their files; no other file is looked at. An artifact that is not what its record says
is damaged, with a reason; that is a fact for the catalog, never an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lce_core.errors import StoreError
from lce_core.store.artifacts import Store
from lce_core.store.integrity import CHANGED_CONTENT, what_is_wrong
from lce_core.store.records import Record
from lce_core.store.steps import Step


@dataclass
class Holdings:
    """The artifacts of a store by short fingerprint."""

    artifacts: Path
    folders: dict[str, Path] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    damage: dict[str, str] = field(default_factory=dict)
    """What is wrong, by short fingerprint."""
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Steps whose last attempt failed, as `FailureNotes.add` wrote them."""

    def intact(self, short: str) -> Record | None:
        """The record of an undamaged artifact; None if it is damaged or not there."""
        return None if short in self.damage else self.records.get(short)

    def file(self, short: str, name: str) -> Path:
        """A file of an artifact.

        Raises:
          StoreError: the record names no such file.
        """
        if name not in self.records[short].files:
            raise StoreError(
                "record.json",
                f"no {name} among its files",
                "every table of the step's kind",
                "run the study again, which computes it anew",
            )
        return self.folders[short] / name

    def trouble(self, short: str, folder: str) -> str | None:
        """What is wrong with the artifact expected in `folder`; None if it is not there at all."""
        if short in self.damage:
            return self.damage[short]
        if short not in self.records and (self.artifacts / folder).is_dir():
            return what_is_wrong(self.artifacts / folder) or "its record.json cannot be read"
        return None


def take_stock(store: Store) -> Holdings:
    """Verifies everything in the store (unchanged files are not hashed again)."""
    holdings = Holdings(store.home / "artifacts", failures=store.failures.all())
    for folder, record in store.records():
        step = _step(record)
        if store.path(step) != folder:
            continue  # a second copy under another name
        holdings.folders[step.short], holdings.records[step.short] = folder, record
        if not store.is_intact(folder, record):
            holdings.damage[step.short] = what_is_wrong(folder) or CHANGED_CONTENT
    store.file_facts.save()
    return holdings


def _step(record: Record) -> Step:
    return Step(
        kind=record.kind,
        name=record.name,
        spec=record.spec,
        parents=record.parents,
        lineage=record.lineage,
        fingerprint=record.fingerprint,
        axes=record.axes,
    )
