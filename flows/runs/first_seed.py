"""The table of the first seed, shown while the other seeds are computed."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from flows.runs.display import Display
from flows.runs.results import WIDTH, show_results
from flows.terminal import Terminal
from lce_core.study.plan import StudyPlan
from lce_core.study.units import Unit
from tasks.projections import refresh


class FirstSeedDisplay:
    """A display that also shows the first seed's table, as soon as all its cells have ended.

    Args:
      display: what shows everything.
      plan: what is wanted.
      units: all that is to do.
      home: whose catalog is asked; it is brought up to date for that, beside the run.
    """

    def __init__(
        self, display: Display, plan: StudyPlan, units: Sequence[Unit], home: Path
    ) -> None:
        self._display, self._plan, self._home = display, plan, home
        computed = {step.fingerprint for unit in units for step in unit.steps}
        cells = [cell for cell in plan.cells if cell.step and cell.step.fingerprint in computed]
        seeds = sorted({cell.seed for cell in cells}, key=plan.study.seeds.index)
        self._seed = seeds[0] if len(seeds) > 1 else None
        """None where the table would not come before the one of all seeds."""
        self._left = {c.step.fingerprint for c in cells if c.step and c.seed == self._seed}
        self._maker = ThreadPoolExecutor(max_workers=1)
        self._table: Future[str] | None = None

    def finish(self, unit: Unit) -> None:
        """A unit ended, perhaps the last of the first seed."""
        self._display.finish(unit)
        ended = self._left & {step.fingerprint for step in unit.steps}
        self._left -= ended
        if ended and not self._left:
            self._table = self._maker.submit(self._text)

    def refresh(self) -> None:
        """Shows the table if it is there."""
        self._display.refresh()
        if self._table and self._table.done():
            table, self._table = self._table, None
            # The run does not hang on it: the same fault will be met where all is recorded.
            error = table.exception()
            self.show(f"no table of seed {self._seed}: {error}" if error else table.result())

    def show(self, text: str) -> None:
        """Leaves a text where the display leaves texts."""
        self._display.show(text)

    def close(self) -> None:
        """A table in the making is not shown, since that of all seeds comes next.

        It is let finish: what follows writes the catalog as well.
        """
        self._maker.shutdown(wait=True, cancel_futures=True)
        self._display.close()

    def _text(self) -> str:
        refresh(self._home)
        text = io.StringIO()
        show_results(self._plan, self._home, Terminal(file=text, width=WIDTH), seed=self._seed)
        return text.getvalue()
