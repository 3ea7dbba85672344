"""Loss log of a run: `loss.jsonl`, one entry per training step, kept across interruptions."""

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from lce_core.store.odd_files import NOT_A_FILE, read_file, write_file

LOG = "loss.jsonl"


def open_log(folder: Path, step: int) -> TextIO:
    """Open the log to append lines; drop entries after `step`, from which the run continues."""
    path = folder / LOG
    kept = [entry for entry in read_entries(path) if entry["step"] <= step]
    write_file(path, "".join(map(line_of, kept)).encode())
    return path.open("a", encoding="utf-8", buffering=1)  # flushes after every line


def read_entries(path: Path) -> list[dict[str, Any]]:
    """Return a log's complete entries, even while a run appends to it."""
    try:
        text = read_file(path).decode("utf-8", "replace")
    except OSError as error:
        if error.errno in NOT_A_FILE:
            return []
        raise
    entries = []
    # A killed writer may leave half a line at the end.
    for line in (line for line in text.splitlines(keepends=True) if line.endswith("}\n")):
        with contextlib.suppress(ValueError, RecursionError):
            entry = json.loads(line)
            if isinstance(entry, dict) and isinstance(entry.get("step"), int):
                entries.append(entry)
    return entries


def line_of(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, allow_nan=False) + "\n"
