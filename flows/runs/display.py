"""Show a run's progress and results in a terminal, or as Prefect artifacts if it is deployed."""

import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect import artifacts
from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from flows.runs.results import show_results
from flows.runs.scheduling import Display
from flows.terminal import Terminal
from lce_core import formats
from lce_core.environment import for_child
from lce_core.study.plan import StudyPlan
from lce_core.study.units import Unit
from lce_core.study.variants import variant_label
from lce_core.terminal import WIDTH
from tasks.projections import refresh
from tasks.questions import read
from tasks.run_progress import RunProgress
from tasks.tracking import pages_of

ARTIFACT_SECONDS = 5.0
LINE_SECONDS = 15.0
_RESULTS = (
    "SELECT base_model, method, frozen, benchmark, eval_length, value, num_done, num_planned"
    " FROM benchmark_by_length WHERE study = '{study}' ORDER BY ALL"
)


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
        self._update_bar()
        if not self._console.is_terminal and time.monotonic() - self._last_line > LINE_SECONDS:
            self._last_line = time.monotonic()
            running = "; ".join(self._run.running())
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
            Text(f"  {line}", overflow="ellipsis", no_wrap=True, style="dim")
            for line in self._run.running()
        ]
        return Group(self._bar, *lines)


class ArtifactDisplay:
    """Show progress as one Prefect artifact of the flow run."""

    def __init__(self, progress: RunProgress) -> None:
        self._run, self._last_update = progress, 0.0
        key = "study-progress"
        self._id: UUID = artifacts.create_progress_artifact(  # type: ignore[assignment]
            progress=0.0, key=key, description=f"{progress}, {progress.time}"
        )

    def finish(self, *units: Unit, failure: str = "") -> None:
        self._run.end(units, failed=bool(failure))
        self.refresh()

    def refresh(self) -> None:
        if time.monotonic() - self._last_update > ARTIFACT_SECONDS:
            self._write()

    def show(self, text: str) -> None:
        artifacts.create_markdown_artifact(f"```text\n{text}```", key="first-table")

    def close(self) -> None:
        self._write()

    def _write(self) -> None:
        self._last_update = time.monotonic()
        text = "\n".join([f"{self._run}, {self._run.time}", *self._run.running()])
        artifacts.update_progress_artifact(
            self._id, progress=100.0 * self._run.done, description=text
        )


class FirstSeedDisplay:
    """A display that also shows the results of the first seed once all its cells have ended."""

    def __init__(
        self, display: Display, plan: StudyPlan, units: Sequence[Unit], home: Path
    ) -> None:
        self._display, self._plan, self._home = display, plan, home
        computed = {step.fingerprint for unit in units for step in unit.steps}
        cells = [cell for cell in plan.cells if cell.step and cell.step.fingerprint in computed]
        seeds = sorted({cell.seed for cell in cells}, key=plan.study.seeds.index)
        self._seed = seeds[0] if len(seeds) > 1 else None
        """The seed whose table is shown, unless fewer than two seeds have cells to compute."""
        self._unfinished = {c.step.fingerprint for c in cells if c.step and c.seed == self._seed}
        self._executor = ThreadPoolExecutor(max_workers=1)
        self._table: Future[str] | None = None

    def finish(self, *units: Unit, failure: str = "") -> None:
        self._display.finish(*units, failure=failure)
        ended = {step for unit in units for step in self._unfinished & unit.outputs}
        self._unfinished -= ended
        if ended and not self._unfinished:
            self._table = self._executor.submit(self._text)

    def refresh(self) -> None:
        self._display.refresh()
        if self._table and self._table.done():
            table, self._table = self._table, None
            # An error here must not end the run. If its cause persists, the error occurs again and
            # is raised when the run writes its results to the catalog.
            error = table.exception()
            failure = f"the table of seed {self._seed} cannot be shown: {error}"
            self.show(failure if error else table.result())

    def show(self, text: str) -> None:
        self._display.show(text)

    def close(self) -> None:
        # A table that is not ready is not shown: that of all seeds follows. Wait for the thread
        # that builds it: both the thread and the caller's next step write the catalog.
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._display.close()

    def _text(self) -> str:
        refresh(self._home)
        text = io.StringIO()
        show_results(self._plan, self._home, Terminal(file=text, width=WIDTH), seed=self._seed)
        return text.getvalue()


def publish_results(study: str, home: Path) -> None:
    artifacts.create_table_artifact(
        results_table(study, home),
        key=f"results-{study}",
        description="Means over seeds and tasks by evaluated length in tokens. 2/3: two of three"
        " cells are done.",
    )
    report = home / "reports" / f"{study}.html"
    command = [sys.executable, "-m", "lce", "report", study, "--out", str(report)]
    environment = {**for_child(os.environ), "LCE_HOME": str(home)}
    # Elsewhere a file could have the study's name, and `lce` would read it as the study.
    done = subprocess.run(command, env=environment, cwd=home, capture_output=True)
    if done.returncode == 0:
        artifacts.create_link_artifact(
            report.as_uri(),
            link_text=f"report of {study}",
            key=f"report-{study}",
            description=f"{report} on {socket.gethostname()}. Browsers do not follow links to"
            f" files: open the file yourself, or run `lce report {study}`.",
        )
    if pages := pages_of(home, study):
        artifacts.create_link_artifact(
            pages.methods,
            link_text=f"MLflow charts of {study}",
            key=f"mlflow-{study}",
            description="One line per method: score against evaluated length.",
        )


def results_table(study: str, home: Path) -> list[dict[str, Any]]:
    """Return one row per variant and benchmark, with a column per length (or "DONE/PLANNED")."""
    found: dict[tuple[str, ...], dict[int, str]] = {}
    for model, method, frozen, benchmark, length, value, done, planned in read(
        home, _RESULTS.format(study=study)
    ):
        row = found.setdefault((model, variant_label(method, frozen), benchmark), {})
        row[length] = f"{done}/{planned}" if value is None else formats.short_score(value)
    lengths = sorted({length for row in found.values() for length in row})
    names = ("base model", "variant", "benchmark")
    return [
        dict(zip(names, key, strict=True)) | {f"{n:,}": row.get(n, "") for n in lengths}
        for key, row in found.items()
    ]
