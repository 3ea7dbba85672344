"""What the workers of this process are doing: events in; a line for each unit and ended steps out.

Tasks run in threads of the flow's process; they post here and the flow reads from here, so that a
progress bar or a Prefect artifact is fed without one API call an event.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lce_core.study.pricing.time_left import Running


@dataclass(frozen=True)
class Ended:
    """A step that a worker is through with."""

    fingerprint: str
    seconds: float | None
    """It took, if it was computed."""


class Board:
    """Latest progress of each running unit; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, str] = {}
        self._steps: dict[str, tuple[str, float, float]] = {}
        """Of each unit: the step that runs, when it began, and the part of it that is done."""
        self._ended: list[Ended] = []
        self._computed = 0

    def post(self, unit: str, event: Mapping[str, Any]) -> None:
        """Takes one event of a worker."""
        with self._lock:
            if event["event"] == "progress":
                self._lines[unit] = describe(event)
                step, began, _ = self._steps.get(unit, ("", time.monotonic(), 0.0))
                began = began if step in ("", event["fingerprint"]) else time.monotonic()
                self._steps[unit] = (event["fingerprint"], began, share(event))
            elif event["event"] == "step":
                computed = event["status"] == "computed"
                self._computed += computed
                self._steps[unit] = ("", time.monotonic(), 0.0)  # the unit's next step begins
                if event["status"] not in ("failed", "held"):  # it may be tried again
                    seconds = event["seconds"] if computed else None
                    self._ended.append(Ended(event["fingerprint"], seconds))

    def finish(self, unit: str) -> None:
        """The unit no longer runs."""
        with self._lock:
            self._lines.pop(unit, None)
            self._steps.pop(unit, None)

    def running(self) -> dict[str, str]:
        """Units that reported progress and have not finished, with their last line."""
        with self._lock:
            return dict(self._lines)

    def running_steps(self) -> dict[str, Running]:
        """Steps that reported progress and have not ended, by fingerprint."""
        now = time.monotonic()
        with self._lock:
            steps = [place for place in self._steps.values() if place[0]]
        return {step: Running(now - began, done) for step, began, done in steps}

    def take_ended(self) -> list[Ended]:
        """Steps that ended since this was last asked."""
        with self._lock:
            ended, self._ended = self._ended, []
        return ended

    @property
    def computed(self) -> int:
        """Steps computed so far."""
        with self._lock:
            return self._computed

    def reset(self) -> None:
        """Forgets everything: a new flow run begins."""
        with self._lock:
            self._lines.clear()
            self._steps.clear()
            self._ended.clear()
            self._computed = 0


def describe(event: Mapping[str, Any]) -> str:
    """One line for people from a progress event."""
    if "steps" in event:
        line = f"step {event['step']}/{event['steps']}"
        return f"{line} loss {event['loss']:.3f}" if event.get("loss") is not None else line
    line = str(event.get("stage", "working"))
    if "total" in event:
        line = f"{event['done']}/{event['total']}"
    elif "tokens" in event:
        line = f"{line} {event['tokens']:,} tokens"
    speed = event.get("tokens_per_second")
    return line if speed is None else f"{line} {speed:,} tokens/s"


def share(event: Mapping[str, Any]) -> float:
    """The part of a step that a progress event says is done, 0 to 1; 0 where it does not say."""
    done, total = (event["step"], event["steps"]) if "steps" in event else (0, 0)
    if "total" in event:
        done, total = event["done"], event["total"]
    return min(1.0, done / total) if total else 0.0


BOARD = Board()
"""The board of this process."""
