"""What went wrong with a step, and how often: home/failures/<fingerprint12>.json."""

from __future__ import annotations

import contextlib
import errno
import json
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from lce_core.errors import WorkerLostError
from lce_core.store.failures import classify
from lce_core.store.records import write_json
from lce_core.store.steps import Step


class FailureNotes:
    """One note for each step whose last attempt failed."""

    def __init__(self, home: Path) -> None:
        self._folder = home / "failures"

    def of(self, step: Step) -> dict[str, Any] | None:
        """The last failure of a step: class, message, attempts; None if none is noted."""
        try:
            content = self._file(step).read_text(encoding="utf-8")
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ESTALE):
                return None
            raise
        try:
            failure: dict[str, Any] = json.loads(content)
        except ValueError:  # cut off by a full disk or a crash: it counts as none
            return None
        return failure

    def attempts(self) -> dict[str, int]:
        """Failed attempts of every step with a failure, by the first digits of its fingerprint."""
        found = {}
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError):
                found[path.stem] = int(json.loads(path.read_text(encoding="utf-8"))["attempts"])
        return found

    def add(self, step: Step, error: BaseException, execution: Mapping[str, Any]) -> None:
        """Remembers why an attempt failed and under which execution, for plan and catalog."""
        last, kind = self.of(step) or {}, classify(error)
        memory = kind == "out_of_memory" or isinstance(error, WorkerLostError)
        write_json(
            self._file(step),
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

    def forget(self, step: Step) -> None:
        """Lets a failed step be tried again."""
        self._file(step).unlink(missing_ok=True)

    def _file(self, step: Step) -> Path:
        return self._folder / f"{step.short}.json"


def folders_of(execution: Mapping[str, Any]) -> dict[str, str]:
    """Folders an execution names: with the same ones, data out of reach stays out of reach."""
    named = {**execution.get("data_folders", {}), **execution.get("model_folders", {})}
    return {name: str(folder) for name, folder in sorted(named.items())}
