"""Show a run's progress in a terminal, or as a Prefect artifact if the run is deployed."""

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
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from flows.runs.run_progress import RunProgress
from lce_core.study.units import Unit

ARTIFACT_SECONDS = 5.0
LINE_SECONDS = 15.0


class Display(Protocol):
    """Interface through which the scheduler shows the progress of a run."""

    def finish(self, *units: Unit, failure: str = "") -> None:
        """Record that units ended: one, and those that will not run because of its `failure`."""

    def refresh(self) -> None:
        """Update the display, about every half second."""

    def show(self, text: str) -> None:
        """Show a text, such as a table, while the run continues."""

    def close(self) -> None:
        """Close the display. No other method is called afterwards."""


class TerminalDisplay:
    """Show a progress bar and running units; without a terminal, print plain lines."""

    def __init__(self, progress: RunProgress, console: Console) -> None:
        self._console, self._last_line, self._run = console, time.monotonic(), progress
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

    def finish(self, *units: Unit, failure: str = "") -> None:
        self._run.end(units, failed=bool(failure))
        if failure:
            self.show(f"{self._run}: {failure}")
        self._update_bar()

    def refresh(self) -> None:
        """Update the bar; without a terminal, print a line every `LINE_SECONDS`."""
        self._update_bar()
        if not self._console.is_terminal and time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            running = "; ".join(f"{name}: {line}" for name, line in self._run.running().items())
            self._console.print(f"{self._run}, {self._run.time}  {running}", soft_wrap=True)

    def show(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        if self._live.is_started:
            self._live.stop()

    def _update_bar(self) -> None:
        if self._live.is_started:
            done, left = self._run.done, self._run.time
            self._bar.update(self._task, description=str(self._run), completed=done, left=left)

    def _view(self) -> Group:
        lines = [
            Text(f"  {name}: {line}", overflow="ellipsis", no_wrap=True, style="dim")
            for name, line in sorted(self._run.running().items())
        ]
        return Group(self._bar, *lines)


class ArtifactDisplay:
    """Show progress as one Prefect artifact of the flow run."""

    def __init__(self, progress: RunProgress) -> None:
        self._run, self._last_update = progress, 0.0
        key = "study-progress"
        self._id: UUID = create_progress_artifact(  # type: ignore[assignment]
            progress=0.0, key=key, description=f"{progress}, {progress.time}"
        )

    def finish(self, *units: Unit, failure: str = "") -> None:
        self._run.end(units, failed=bool(failure))
        self.refresh()

    def refresh(self) -> None:
        """Update the artifact, at most every `ARTIFACT_SECONDS`."""
        if time.monotonic() - self._last_update > ARTIFACT_SECONDS:
            self._write()

    def show(self, text: str) -> None:
        """Create a separate Markdown artifact with the text."""
        create_markdown_artifact(f"```text\n{text}```", key="first-table")

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        self._last_update = time.monotonic()
        running = (f"{name}: {line}" for name, line in self._run.running().items())
        text = "\n".join([f"{self._run}, {self._run.time}", *running])
        update_progress_artifact(self._id, progress=100.0 * self._run.done, description=text)
