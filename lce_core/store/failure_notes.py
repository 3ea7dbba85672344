"""What went wrong with a step, and how often: home/failures/<fingerprint12>.json."""

from __future__ import annotations

import contextlib
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


class FailureNotes:
    """One note for each step whose last attempt failed."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "failures"

    def of(self, step: Step) -> dict[str, Any] | None:
        """The last failure of a step: class, message, attempts; None if none is noted."""
        try:
            failure = read_mapping(self._file(step.short))
        except OSError as error:
            if error.errno in NOT_A_FILE:
                return None
            raise
        except ValueError:  # cut off by a full disk or a crash: it counts as none
            return None
        return failure if _is_note(failure) else None

    def all(self) -> dict[str, dict[str, Any]]:
        """Return every note by the first digits of the step's fingerprint; others count as none."""
        found = {}
        for path in sorted(self._folder.glob("*.json")):
            # It may be forgotten meanwhile: the step was done after all.
            with contextlib.suppress(OSError, ValueError):
                if _is_note(note := read_mapping(path)):
                    found[path.stem] = note
        return found

    def attempts(self) -> dict[str, int]:
        """Failed attempts of every step with a failure, by the first digits of its fingerprint."""
        return {short: note["attempts"] for short, note in self.all().items()}

    def add(self, step: Step, error: BaseException, execution: Mapping[str, Any]) -> None:
        """Remembers why an attempt failed and under which execution, for plan and catalog."""
        last, kind = self.of(step) or {}, classify(error)
        memory = kind == "out_of_memory" or isinstance(error, WorkerLostError)
        write_json(
            self._file(step.short),
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

    def forget(self, short: str) -> None:
        """Forget the note of the step whose fingerprint has these first digits."""
        with contextlib.suppress(IsADirectoryError):  # no note, and not ours
            self._file(short).unlink(missing_ok=True)

    def _file(self, short: str) -> Path:
        return self._folder / f"{short}.json"


def _is_note(content: Mapping[str, Any]) -> bool:
    """Return whether a file holds what `FailureNotes.add` writes, of any version."""
    types = {"class": str, "message": str, "folder": str, "attempts": int, "folders": dict}
    others = {"axes": dict, "short_of_memory": int}
    return all(isinstance(content.get(name), kind) for name, kind in types.items()) and all(
        isinstance(content.get(name, kind()), kind) for name, kind in others.items()
    )


def folders_of(execution: Mapping[str, Any]) -> dict[str, str]:
    """Folders an execution names: with the same ones, data out of reach stays out of reach."""
    named = {**execution.get("data_folders", {}), **execution.get("model_folders", {})}
    return {name: str(folder) for name, folder in sorted(named.items())}
