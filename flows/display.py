"""Progress of a study: a live view in a terminal, or one Prefect artifact for a deployed run."""

from __future__ import annotations

import time
from typing import Protocol
from uuid import UUID

from prefect.artifacts import create_progress_artifact, update_progress_artifact
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from lce_core.study.units import Unit
from tasks.board import BOARD

ARTIFACT_SECONDS = 5.0
LINE_SECONDS = 15.0


class Display(Protocol):
    """Told by the scheduler what happens."""

    def finish(self, unit: Unit) -> None:
        """A unit ended, well or not."""

    def refresh(self) -> None:
        """Half a second passed."""

    def close(self) -> None:
        """Nothing more will happen."""


class TerminalDisplay:
    """A bar of cells and a line for each running unit; plain lines where there is no terminal."""

    def __init__(self, total_steps: int, console: Console) -> None:
        self._console, self._last, self._finished = console, time.monotonic(), 0
        self._total = total_steps
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
        )
        self._task = self._bar.add_task("steps", total=total_steps)
        self._live = Live(console=console, transient=True, get_renderable=self._view)
        if console.is_terminal and total_steps:
            self._live.start()

    def finish(self, unit: Unit) -> None:
        """Moves the bar on by the unit's steps."""
        self._finished += len(unit.steps)
        self._bar.update(self._task, completed=self._finished)

    def refresh(self) -> None:
        """Prints a plain line now and then where there is no live view."""
        if not self._console.is_terminal and time.monotonic() - self._last > LINE_SECONDS:
            self._last = time.monotonic()
            running = "; ".join(f"{name}: {line}" for name, line in BOARD.running().items())
            self._console.print(f"{self._finished}/{self._total} steps  {running}", soft_wrap=True)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self._live.is_started:
            self._live.stop()

    def _view(self) -> Group:
        lines = [
            Text(f"  {name}: {line}", overflow="ellipsis", no_wrap=True, style="dim")
            for name, line in sorted(BOARD.running().items())
        ]
        return Group(self._bar, *lines)


class ArtifactDisplay:
    """One progress artifact of the flow run, updated every few seconds."""

    def __init__(self, total_steps: int) -> None:
        self._total, self._finished, self._last = max(1, total_steps), 0, 0.0
        key = "study-progress"
        self._id: UUID = create_progress_artifact(  # type: ignore[assignment]
            progress=0.0, key=key, description=f"{total_steps} steps to do"
        )

    def finish(self, unit: Unit) -> None:
        """Moves the artifact on by the unit's steps."""
        self._finished += len(unit.steps)
        self.refresh()

    def refresh(self) -> None:
        """Writes the artifact, at most every few seconds."""
        if time.monotonic() - self._last > ARTIFACT_SECONDS:
            self._write()

    def close(self) -> None:
        """Writes the last state."""
        self._write()

    def _write(self) -> None:
        self._last = time.monotonic()
        running = "\n".join(f"{name}: {line}" for name, line in BOARD.running().items())
        update_progress_artifact(
            self._id, progress=100.0 * self._finished / self._total, description=running or None
        )
