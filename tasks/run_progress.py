"""Progress of a run, from the events of its workers: finished cells, share of the work, time left.

Displays poll it, so that not every event causes a call of Prefect's API.
"""

import threading
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from lce_core import formats
from lce_core.study.pricing.calibration import Predicted, Running, TimeLeft
from lce_core.study.units import Unit


class RunProgress:
    """Counts the finished cells of a run and estimates the time left. Thread-safe."""

    def __init__(
        self,
        units: Sequence[Unit],
        predicted: Mapping[str, Predicted],
        cells: Sequence[str | None],
        done: Collection[str],
        slots: int,
    ) -> None:
        """Track units, parents first, and `cells`: a fingerprint, or None if not computable."""
        self._lock = threading.RLock()
        self._left = TimeLeft(units, predicted, slots)
        self._cells, self._done = cells, set(done)
        self._to_do = {step.fingerprint for unit in units for step in unit.steps}
        self._lines: dict[str, str] = {}
        """Latest progress of each running unit."""
        self._steps: dict[str, tuple[str, float, float]] = {}
        """Fingerprint ("" until it reports progress), monotonic start and share done, by unit."""
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
                    self._end(event["fingerprint"], event["seconds"] if computed else None)

    def finish(self, unit: str) -> None:
        with self._lock:
            self._lines.pop(unit, None)
            self._steps.pop(unit, None)

    def end(self, units: Iterable[Unit], *, failed: bool) -> None:
        """Count the units' steps as done; if `failed`, only those that workers reported as done."""
        with self._lock:
            for step in (step for unit in units for step in unit.outputs & self._to_do):
                self._end(step, None, done=not failed)

    def running(self) -> list[str]:
        with self._lock:
            return [f"{name}: {line}" for name, line in sorted(self._lines.items())]

    def running_steps(self) -> dict[str, Running]:
        now = time.monotonic()
        with self._lock:
            steps = list(self._steps.values())
        return {step: Running(now - started, done) for step, started, done in steps if step}

    def __str__(self) -> str:
        with self._lock:
            done = sum(cell in self._done for cell in self._cells)
            to_do = sum(cell in self._to_do for cell in self._cells)
        lost = len(self._cells) - done - to_do
        text = f"{done:,} of {len(self._cells):,} cells"
        return f"{text}; {lost:,} cannot be computed" if lost else text

    @property
    def done(self) -> float:
        """Share of the predicted work, from 0 to 1."""
        with self._lock:
            return self._left.done

    @property
    def time(self) -> str:
        """Remaining time as "~2 h left", or "about 2 h left" after this run has measured a step."""
        with self._lock:
            seconds = self._left.seconds(self.running_steps())
            about = "about " if self._left.is_measured else "~"
        return f"{about}{formats.duration(seconds)} left"

    def _end(self, step: str, seconds: float | None, *, done: bool = True) -> None:
        self._left.end(step, seconds)
        self._to_do.discard(step)
        if done:
            self._done.add(step)


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
