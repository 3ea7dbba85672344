"""Write and read the files of the prompt cache, one file for each cell.

A file (`lce_core.store.parts`) has three arrays: `ids` (token ids of all prompts, uint32),
`lengths` (tokens of each prompt) and `fields` (all other fields of the prompts, as JSON bytes).
"""

from __future__ import annotations

import contextlib
import json
import time
import uuid
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.store.odd_files import put, read_file
from lce_core.store.parts import from_bytes, to_bytes

_WRITING = ".writing-"
_ABANDONED_SECONDS = 3600
"""An unfinished file of this age is deleted. Writing takes seconds, so its process has crashed."""


def write_prompts(file: Path, prompts: Sequence[Prompt]) -> None:
    """Write prompts to `file` atomically, and delete unfinished files of crashed processes."""
    content = _to_bytes(prompts)
    file.parent.mkdir(parents=True, exist_ok=True)
    _sweep(file.parent)
    aside = file.with_name(f"{_WRITING}{uuid.uuid4().hex}")
    try:
        aside.write_bytes(content)
        put(aside, file)
    finally:
        aside.unlink(missing_ok=True)


def read_prompts(file: Path) -> tuple[Prompt, ...] | None:
    """Return the prompts in a file of `write_prompts`; None if it is missing or damaged."""
    try:
        return _from_bytes(read_file(file))
    except (OSError, KeyError, TypeError, ValueError):
        return None


def _to_bytes(prompts: Sequence[Prompt]) -> bytes:
    others = [field.name for field in fields(Prompt) if field.name != "ids"]
    columns = {name: [getattr(prompt, name) for prompt in prompts] for name in others}
    arrays = {
        "ids": np.concatenate([np.zeros(0, np.int64), *(prompt.ids for prompt in prompts)]),
        "lengths": np.array([len(prompt.ids) for prompt in prompts], dtype=np.int64),
        "fields": np.frombuffer(json.dumps(columns).encode("ascii"), dtype=np.uint8),
    }
    arrays["ids"] = arrays["ids"].astype(np.uint32)
    return to_bytes(arrays)


def _from_bytes(content: bytes) -> tuple[Prompt, ...] | None:
    arrays = from_bytes(content)
    if arrays is None:
        return None
    columns = json.loads(arrays["fields"].tobytes())
    ids, ends = arrays["ids"].astype(np.int64), np.cumsum(arrays["lengths"])
    rows = [ids[end - length : end] for end, length in zip(ends, arrays["lengths"], strict=True)]
    others = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return tuple(
        Prompt(ids=row, **{name: _as_field(value) for name, value in other.items()})
        for row, other in zip(rows, others, strict=True)
    )


def _as_field(value: Any) -> Any:
    return tuple(map(_as_field, value)) if isinstance(value, list) else value


def _sweep(folder: Path) -> None:
    for left in folder.glob(f"{_WRITING}*"):
        # Another process may remove the file first.
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()
