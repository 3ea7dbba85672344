"""Types of the callbacks through which long-running work reports its progress."""

from collections.abc import Callable, Mapping
from typing import Any

Report = Callable[[Mapping[str, Any]], None]
"""Callback that receives one entry of a step's progress log: JSON values by name."""
Progress = Callable[[int, int], None]
"""Callback that receives (work done, total work)."""


def no_progress(done: int, total: int) -> None: ...


def shifted(report: Progress, first: int, total: int) -> Progress:
    """Return a callback for a part of some work: it reports `first` + the part's progress."""
    return lambda done, _: report(first + done, total)
