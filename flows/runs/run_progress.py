"""Progress of a run: finished cells, share of the predicted work, time left; and its outcome."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from lce_core import formats
from lce_core.study.pricing.calibration import Predicted, TimeLeft
from lce_core.study.units import Unit
from tasks.progress_tracker import ProgressTracker


@dataclass
class Outcome:
    """Result or error of the flow's function. When the function has ended, exactly one is set.

    Prefect's client returns a flow's result only if the server answers.
    """

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """May be a KeyboardInterrupt."""
    flow_run: UUID | None = None
    """Id in Prefect; None if a deployment created it."""
    ended_in_prefect: str = ""
    """"cancelled" or "deleted", if a user did that in Prefect."""


class RunProgress:
    """Counts the finished cells of a run and estimates the time left."""

    def __init__(
        self,
        units: Sequence[Unit],
        predicted: Mapping[str, Predicted],
        cells: Sequence[str | None],
        done: Collection[str],
        slots: int,
        tracker: ProgressTracker,
    ) -> None:
        """Track units, parents first, and `cells`: a fingerprint, or None if not computable."""
        self._left = TimeLeft(units, predicted, slots)
        self._cells, self._tracker = cells, tracker
        self._done = set(done)
        self._to_do = {step.fingerprint for unit in units for step in unit.steps}

    @property
    def done(self) -> float:
        """Share of the predicted work, from 0 to 1."""
        self._update()
        return self._left.done

    def end(self, units: Iterable[Unit], *, failed: bool) -> None:
        """Count the units' steps as done; if `failed`, only those that workers reported as done."""
        self._update()
        for step in (step for unit in units for step in unit.outputs & self._to_do):
            self._end(step, None, done=not failed)

    def running(self) -> list[str]:
        return [f"{name}: {line}" for name, line in sorted(self._tracker.running().items())]

    def __str__(self) -> str:
        self._update()
        done = sum(cell in self._done for cell in self._cells)
        to_do = sum(cell in self._to_do for cell in self._cells)
        lost = len(self._cells) - done - to_do
        text = f"{done:,} of {len(self._cells):,} cells"
        return f"{text}; {lost:,} cannot be computed" if lost else text

    @property
    def time(self) -> str:
        """Remaining time as "~2 h left", or "about 2 h left" after this run has measured a step."""
        self._update()
        seconds = self._left.seconds(self._tracker.running_steps())
        about = "about " if self._left.is_measured else "~"
        return f"{about}{formats.duration(seconds)} left"

    def _update(self) -> None:
        for step, seconds in self._tracker.take_ended():
            self._end(step, seconds)

    def _end(self, step: str, seconds: float | None, *, done: bool = True) -> None:
        self._left.end(step, seconds)
        self._to_do.discard(step)
        if done:
            self._done.add(step)
