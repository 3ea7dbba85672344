"""List the contents of a store: records of artifacts, damaged artifacts, failed and missing steps.

Only files that records list are read. An artifact that does not match its record counts as damaged.
The catalog reports the reason; no error is raised.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lce_core.errors import StoreError
from lce_core.store.artifacts import Store
from lce_core.store.records import Record
from lce_core.store.verification import CHANGED_CONTENT, what_is_wrong
from lce_core.study.states import State


@dataclass
class Holdings:
    """The artifacts of a store; all mappings are keyed by artifact id (short fingerprint)."""

    artifacts: Path
    folders: dict[str, Path] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    damage: dict[str, str] = field(default_factory=dict)
    """Reasons why artifacts are damaged. An artifact without an entry is intact."""
    failures: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Notes about steps whose last attempt failed (see `FailureNotes.add`)."""

    def intact(self, short: str) -> Record | None:
        """Return the record of an undamaged artifact; None if it is damaged or missing."""
        return None if short in self.damage else self.records.get(short)

    def result(self, short: str | None) -> dict[str, Any]:
        """Return the result of an undamaged artifact; {} if it is damaged, missing or None."""
        record = self.intact(short) if short else None
        return record.result if record else {}

    def file(self, short: str, name: str) -> Path:
        """Return the path of a file that the artifact's record must list."""
        if name not in self.records[short].files:
            raise StoreError(
                "record.json",
                f"a list of files without {name}",
                "all files that a step of this kind writes",
                "run the study again, which recomputes the step",
            )
        return self.folders[short] / name

    def status(self, cell: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Any]:
        """Return the columns `status`, `reason`, `attempts` and `seconds` of a planned cell.

        `reason` states why the cell is not done; `seconds` is None unless it is. `kinds` maps the
        short fingerprints of all steps on which the study's cells depend to "rows", "finetune", ...
        """
        if cell["unavailable"]:
            return _status("unavailable", cell["unavailable"])
        short = cell["cell"]
        record = self.intact(short)
        if record is not None:
            return _status("done", None, record.attempts, record.seconds)
        if failure := self.failures.get(short):
            # Some cells prove impossible only when they run.
            if failure["class"] == "unavailable":
                return _status("unavailable", failure["message"], failure["attempts"])
            return _status("failed", _cause(failure), failure["attempts"])
        damage, folder = self.damage.get(short), self.artifacts / cell["folder"]
        if short not in self.records and folder.is_dir():
            damage = damage or what_is_wrong(folder) or "its record.json cannot be read"
        if damage:
            return _status("missing", f"damaged: {damage}; the next run computes it again")
        return _status("missing", self._obstacle(cell["blocked_by"], kinds))

    def _obstacle(self, parents: list[str], kinds: Mapping[str, str]) -> str:
        waiting = [parent for parent in parents if self.intact(parent) is None]
        for parent in waiting:
            if failure := self.failures.get(parent):
                kind = failure["folder"].split("/")[0]
                return f"{kind} {parent} failed: {_cause(failure)}"
        if not waiting:
            return "not run yet"
        return f"waits for {kinds[waiting[0]]} {waiting[0]}"


def take_stock(store: Store) -> Holdings:
    """Verify every artifact in the store; files unchanged since the last check are not hashed."""
    holdings = Holdings(store.home / "artifacts", failures=store.failures.all())
    for folder, record in store.records():
        step = record.step
        if store.path(step) != folder:
            continue  # a copy under another name
        holdings.folders[step.id], holdings.records[step.id] = folder, record
        if not store.is_intact(folder, record):
            holdings.damage[step.id] = what_is_wrong(folder) or CHANGED_CONTENT
    store.file_facts.save()
    return holdings


def _cause(failure: Mapping[str, Any]) -> str:
    return f"{failure['class']}: {failure['message']}"


def _status(
    status: State, reason: str | None, attempts: int = 0, seconds: float | None = None
) -> dict[str, Any]:
    return {"status": status, "reason": reason, "attempts": attempts, "seconds": seconds}
