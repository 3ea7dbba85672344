"""How work that takes long says how far it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[Mapping[str, Any]], None]
"""Called with one row of a step's log: names and JSON values."""
Progress = Callable[[int, int], None]
"""Called with (done, in all)."""


def no_progress(done: int, total: int) -> None:
    """Where nobody listens."""
