"""Progress of a run: finished cells, finished share of the predicted work, remaining time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lce_core import formats
from lce_core.study.pricing.time_left import Predicted, TimeLeft
from lce_core.study.step_kinds import is_reported
from lce_core.study.units import Unit
from tasks.progress_tracker import ProgressTracker


class RunProgress:
    """Counts the finished cells of a run and estimates the time left."""

    def __init__(
        self,
        units: Sequence[Unit],
        predicted: Mapping[str, Predicted],
        num_cells: int,
        slots: int,
        tracker: ProgressTracker,
    ) -> None:
        """Track a run.

        Args:
          units: all units to do, parents first.
          predicted: predicted time of each of the units' steps, by fingerprint.
          num_cells: number of cells that the user wants, including those done before this run.
          slots: number of slots of the run.
          tracker: receives the workers' progress messages.
        """
        steps = [step for unit in units for step in unit.steps]
        self._left = TimeLeft(units, predicted, slots)
        self._cells = {step.fingerprint for step in steps if is_reported(step)}
        self._num_cells, self._tracker = num_cells, tracker
        self._ended: set[str] = set()

    @property
    def done(self) -> float:
        """Share of the predicted work that is done, from 0 to 1."""
        self._update()
        return self._left.done

    def end(self, unit: Unit) -> None:
        """Count the unit's steps as ended, even those that failed."""
        self._update()
        for step in unit.steps:
            self._end(step.fingerprint, None)

    def running(self) -> dict[str, str]:
        """Return the latest progress line of each running unit, by unit name."""
        return self._tracker.running()

    def __str__(self) -> str:
        self._update()
        left = len(self._cells - self._ended)
        return f"{self._num_cells - left:,} of {self._num_cells:,} cells"

    @property
    def time(self) -> str:
        """Remaining time as "~2 h left", or "about 2 h left" after this run has measured a step."""
        self._update()
        seconds = self._left.seconds(self._tracker.running_steps())
        about = "about " if self._left.is_measured else "~"
        return f"{about}{formats.duration(seconds)} left"

    def _update(self) -> None:
        for ended in self._tracker.take_ended():
            self._end(ended.fingerprint, ended.seconds)

    def _end(self, step: str, seconds: float | None) -> None:
        self._left.end(step, seconds)
        self._ended.add(step)
