"""Collect the progress events of a run's workers for its displays.

Displays poll, so that not every event causes a call of Prefect's API.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from lce_core.study.pricing.calibration import Running


class ProgressTracker:
    """Latest progress of each running unit. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[str, str] = {}
        self._steps: dict[str, tuple[str, float, float]] = {}
        """Fingerprint ("" until it reports progress), monotonic start and share done, by unit."""
        self._ended: list[tuple[str, float | None]] = []
        self.computed = 0
        """Number of steps that this run's workers have computed."""

    def publish(self, unit: str, event: Mapping[str, Any]) -> None:
        with self._lock:
            if event["event"] == "progress":
                self._lines[unit] = describe(event)
                step, started, _ = self._steps.get(unit, ("", time.monotonic(), 0.0))
                started = started if step in ("", event["fingerprint"]) else time.monotonic()
                self._steps[unit] = (event["fingerprint"], started, share(event))
            elif event["event"] == "step":
                computed = event["status"] == "computed"
                self.computed += computed
                self._steps[unit] = ("", time.monotonic(), 0.0)  # the unit's next step starts
                # A failed or held step may be retried, so it has not ended.
                if event["status"] not in ("failed", "held"):
                    seconds = event["seconds"] if computed else None
                    self._ended.append((event["fingerprint"], seconds))

    def finish(self, unit: str) -> None:
        with self._lock:
            self._lines.pop(unit, None)
            self._steps.pop(unit, None)

    def running(self) -> dict[str, str]:
        with self._lock:
            return dict(self._lines)

    def running_steps(self) -> dict[str, Running]:
        now = time.monotonic()
        with self._lock:
            steps = list(self._steps.values())
        return {step: Running(now - started, done) for step, started, done in steps if step}

    def take_ended(self) -> list[tuple[str, float | None]]:
        """Return the steps that ended since the last call, and the seconds of computed ones.

        A step whose result the worker found in the store has None.
        """
        with self._lock:
            ended, self._ended = self._ended, []
        return ended


def describe(event: Mapping[str, Any]) -> str:
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
    done, total = (event["step"], event["steps"]) if "steps" in event else (0, 0)
    if "total" in event:
        done, total = event["done"], event["total"]
    return min(1.0, done / total) if total else 0.0
