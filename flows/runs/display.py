"""Progress of a study: a live view in a terminal, or one Prefect artifact for a deployed run."""

from __future__ import annotations

import time
from typing import Protocol
from uuid import UUID

from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    update_progress_artifact,
)
from rich.console import Console, Group
from rich.live import Live
from rich.progress import (
    BarColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.text import Text

from flows.runs.run_progress import RunProgress
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

    def show(self, text: str) -> None:
        """A text to be read while the run goes on."""

    def close(self) -> None:
        """Nothing more will happen."""


class TerminalDisplay:
    """A bar and a line for each running unit; plain lines where there is no terminal."""

    def __init__(self, progress: RunProgress, console: Console) -> None:
        self._console, self._last, self._run = console, time.monotonic(), progress
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}", markup=False),
            console=console,
            expand=True,
        )
        self._task = self._bar.add_task(str(progress), total=1.0, left=progress.time)
        self._live = Live(console=console, transient=True, get_renderable=self._view)
        if progress.done == 1:
            return
        if console.is_terminal:
            self._live.start()
        else:
            console.print(f"{progress}, {progress.time}", soft_wrap=True)

    def finish(self, unit: Unit) -> None:
        """Nothing of the unit is left."""
        self._run.end(unit)
        self._move()

    def refresh(self) -> None:
        """Moves the bar; prints a plain line now and then where there is no live view."""
        self._move()
        if not self._console.is_terminal and time.monotonic() - self._last > LINE_SECONDS:
            self._last = time.monotonic()
            running = "; ".join(f"{name}: {line}" for name, line in BOARD.running().items())
            self._console.print(f"{self._run}, {self._run.time}  {running}", soft_wrap=True)

    def show(self, text: str) -> None:
        """Prints it above what moves."""
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        """Leaves the terminal as it was."""
        if self._live.is_started:
            self._live.stop()

    def _move(self) -> None:
        if self._live.is_started:
            done, left = self._run.done, self._run.time
            self._bar.update(self._task, description=str(self._run), completed=done, left=left)

    def _view(self) -> Group:
        lines = [
            Text(f"  {name}: {line}", overflow="ellipsis", no_wrap=True, style="dim")
            for name, line in sorted(BOARD.running().items())
        ]
        return Group(self._bar, *lines)


class ArtifactDisplay:
    """One progress artifact of the flow run, updated every few seconds."""

    def __init__(self, progress: RunProgress) -> None:
        self._run, self._last = progress, 0.0
        key = "study-progress"
        self._id: UUID = create_progress_artifact(  # type: ignore[assignment]
            progress=0.0, key=key, description=f"{progress}, {progress.time}"
        )

    def finish(self, unit: Unit) -> None:
        """Moves the artifact on."""
        self._run.end(unit)
        self.refresh()

    def refresh(self) -> None:
        """Writes the artifact, at most every few seconds."""
        if time.monotonic() - self._last > ARTIFACT_SECONDS:
            self._write()

    def show(self, text: str) -> None:
        """Writes an artifact of its own."""
        create_markdown_artifact(f"```text\n{text}```", key="first-table")

    def close(self) -> None:
        """Writes the last state."""
        self._write()

    def _write(self) -> None:
        self._last = time.monotonic()
        running = (f"{name}: {line}" for name, line in BOARD.running().items())
        told = "\n".join([f"{self._run}, {self._run.time}", *running])
        update_progress_artifact(self._id, progress=100.0 * self._run.done, description=told)
