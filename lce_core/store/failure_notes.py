"""Save the last failure of each step in home/failures/<id>.json, for plans and the catalog."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lce_core.errors import WorkerLostError
from lce_core.store.failures import classify
from lce_core.store.odd_files import NOT_A_FILE, read_mapping
from lce_core.store.records import write_json
from lce_core.store.steps import Step

_TYPES = {
    **dict.fromkeys(("class", "message", "folder"), str),
    **dict.fromkeys(("attempts", "short_of_memory"), int),
    **dict.fromkeys(("folders", "axes"), dict),
}
"""Keys and types that a failure file must have; other files are ignored."""


class FailureNotes:
    """The failures of a store: one JSON file per step whose last attempt failed."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "failures"

    def of(self, step: Step) -> dict[str, Any] | None:
        """Return the content of a step's failure file (see `add`); None if it has no valid file."""
        try:
            failure = read_mapping(self._file(step.id))
        except OSError as error:
            if error.errno in NOT_A_FILE:
                return None
            raise
        except ValueError:  # truncated by a full disk or a crash
            return None
        return failure if _is_note(failure) else None

    def all(self) -> dict[str, dict[str, Any]]:
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            # Meanwhile another process may finish the step and delete the file.
            with contextlib.suppress(OSError, ValueError):
                if _is_note(note := read_mapping(path)):
                    found[path.stem] = note
        return found

    def attempts(self) -> dict[str, int]:
        return {step_id: note["attempts"] for step_id, note in self.all().items()}

    def add(self, step: Step, error: BaseException, execution: Mapping[str, Any]) -> None:
        """Replace the step's failure file after a failed attempt.

        Since the step was last done, `attempts` counts failed ones, and `short_of_memory` those
        that ran out of memory or lost their worker.
        """
        last, kind = self.of(step) or {}, classify(error)
        memory = kind == "out_of_memory" or isinstance(error, WorkerLostError)
        write_json(
            self._file(step.id),
            {
                "fingerprint": step.fingerprint,
                "folder": step.folder,
                "axes": dict(step.axes),
                "class": kind,
                "error": type(error).__name__,
                "message": str(error)[:2000],
                "trace": "".join(traceback.format_exception(error))[-8000:],
                "attempts": last.get("attempts", 0) + 1,
                "short_of_memory": last.get("short_of_memory", 0) + memory,
                "folders": folders_of(execution),
                "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            },
        )

    def adopt(self, step_id: str, file: Path) -> bool:
        """Copy a failure file of another home, unless the step has one; return False if invalid."""
        try:
            note = read_mapping(file)
        except (OSError, ValueError):
            return False
        if not _is_note(note):
            return False
        if not os.path.lexists(self._file(step_id)):
            write_json(self._file(step_id), note)
        return True

    def forget(self, step_id: str) -> None:
        with contextlib.suppress(IsADirectoryError):  # not created by lce
            self._file(step_id).unlink(missing_ok=True)

    def _file(self, step_id: str) -> Path:
        return self._folder / f"{step_id}.json"


def _is_note(content: Mapping[str, Any]) -> bool:
    return all(isinstance(content.get(name), kind) for name, kind in _TYPES.items())


def folders_of(execution: Mapping[str, Any]) -> dict[str, str]:
    """Return the data and model folders by name; unavailable steps are retried if they change."""
    named = {**execution.get("data_folders", {}), **execution.get("model_folders", {})}
    return {name: str(folder) for name, folder in sorted(named.items())}
