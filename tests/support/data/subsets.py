"""Stand-ins of published files say that they hold fewer rows than those, as users' subsets do."""

import json
from collections.abc import Mapping
from pathlib import Path

from lce_core.benchmarks._data import SUBSET


def state_rows(folder: Path, rows: Mapping[str, int]) -> Path:
    """Writes how many rows each file or split of `folder` has on purpose; returns `folder`."""
    file = folder / SUBSET
    stated = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    file.write_text(json.dumps({**stated, **rows}), encoding="utf-8")
    return folder
