"""What the workers of this process are doing: events in, one line a unit out.

Tasks run in threads of the flow's process; they post here and the flow reads from here, so that a
progress bar or a Prefect artifact is fed without one API call an event.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any


class Board:
    """Latest progress of each running unit; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, str] = {}
        self._computed = 0

    def post(self, unit: str, event: Mapping[str, Any]) -> None:
        """Takes one event of a worker."""
        with self._lock:
            if event["event"] == "progress":
                self._lines[unit] = describe(event)
            elif event["event"] == "step" and event["status"] == "computed":
                self._computed += 1

    def finish(self, unit: str) -> None:
        """The unit no longer runs."""
        with self._lock:
            self._lines.pop(unit, None)

    def running(self) -> dict[str, str]:
        """Units that reported progress and have not finished, with their last line."""
        with self._lock:
            return dict(self._lines)

    @property
    def computed(self) -> int:
        """Steps computed so far."""
        with self._lock:
            return self._computed

    def reset(self) -> None:
        """Forgets everything: a new flow run begins."""
        with self._lock:
            self._lines.clear()
            self._computed = 0


def describe(event: Mapping[str, Any]) -> str:
    """One line for people from a progress event."""
    if "steps" in event:
        line = f"step {event['step']}/{event['steps']}"
        return f"{line} loss {event['loss']:.3f}" if event.get("loss") is not None else line
    if "total" in event:
        return f"{event['done']}/{event['total']}"
    return str(event.get("stage", "working"))


BOARD = Board()
"""The board of this process."""
