"""Show the table of the first seed while the other seeds are computed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from flows.runs.display import Display
from flows.runs.results import show_results
from flows.terminal import Terminal
from lce_core.study.plan import StudyPlan
from lce_core.study.units import Unit
from lce_core.terminal import WIDTH
from tasks.projections import refresh


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
        """After the first seed's last unit, start to build the table."""
        self._display.finish(*units, failure=failure)
        ended = {step for unit in units for step in self._unfinished & unit.outputs}
        self._unfinished -= ended
        if ended and not self._unfinished:
            self._table = self._executor.submit(self._text)

    def refresh(self) -> None:
        """Also show the table once it is ready."""
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
        """Close the display. A table that is not ready is not shown: that of all seeds follows.

        Wait for the thread that builds it: both the thread and the caller's next step write the
        catalog.
        """
        self._executor.shutdown(wait=True, cancel_futures=True)
        self._display.close()

    def _text(self) -> str:
        refresh(self._home)
        text = io.StringIO()
        show_results(self._plan, self._home, Terminal(file=text, width=WIDTH), seed=self._seed)
        return text.getvalue()
