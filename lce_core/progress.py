"""Types of the callbacks through which long-running work reports its progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[Mapping[str, Any]], None]
"""Callback that receives entries of a step's progress log: mappings of names to JSON values."""
Progress = Callable[[int, int], None]
"""Callback for progress, called with (done, total)."""


def no_progress(done: int, total: int) -> None:
    """Ignore progress; the default for callers without a listener."""
