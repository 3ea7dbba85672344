"""Loss log of a run: `loss.jsonl`, one entry per training step, kept across interruptions."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from lce_core.store.odd_files import NOT_A_FILE, put, read_file

LOG = "loss.jsonl"


class LossLog:
    """Append entries to `loss.jsonl`; drop those after `step`, from which the run continues."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / LOG
        kept = [entry for entry in read_entries(self.path) if entry["step"] <= step]
        aside = self.path.with_suffix(".writing")
        aside.write_text("".join(map(_line, kept)), encoding="utf-8")
        put(aside, self.path)
        self._file = self.path.open("a", encoding="utf-8")

    def append(self, entry: Mapping[str, Any]) -> None:
        self._file.write(_line(entry))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Return a log's complete entries, even while a run appends to it."""
    try:
        text = read_file(path).decode("utf-8", "replace")
    except OSError as error:
        if error.errno in NOT_A_FILE:
            return []
        raise
    # A killed writer may leave half a line at the end.
    lines = (line for line in text.splitlines(keepends=True) if line.endswith("}\n"))
    return [entry for line in lines if (entry := _entry(line)) is not None]


def _entry(line: str) -> dict[str, Any] | None:
    with contextlib.suppress(ValueError, RecursionError):
        entry = json.loads(line)
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            return entry
    return None


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"
