"""Plants small faults in copies of the tree, one at a time, and shows which test notices each.

    python -m tests.mutation [--only NAME] [--jobs N]

The checkout is never changed. The tests that the table names run first; if they pass, so do the
quick tests of the folder that mirrors the file. Data sets are hidden, since the quick tests have to
do without. Exit codes: 0 every fault was noticed or is a documented survivor; 1 one was not, or a
documented survivor no longer survives; 2 the table does not fit the code, or tests fail without a
fault.
"""

import argparse
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from tests.mutation.faults import TABLE, Fault, TableError, read_table
from tests.mutation.pytest_in_fork import RunError, first_failure, import_libraries
from tests.support.repository import ROOT

_LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "lce-home", "*.egg-info", "build", "dist")


@dataclass(frozen=True)
class Outcome:
    """What became of one fault."""

    fault: Fault
    killer: str | None
    """The test that noticed it."""
    seconds: float

    @property
    def as_documented(self) -> bool:
        """Noticed, or documented as a survivor, and not both."""
        return (self.killer is None) == (self.fault.survives is not None)

    def __str__(self) -> str:
        verdict = self.killer or ("survives, documented" if self.fault.survives else "SURVIVES")
        if self.killer and self.fault.survives:
            verdict = f"DOCUMENTED AS A SURVIVOR, but noticed by {self.killer}"
        return f"{self.fault.area:11} {self.fault.name:28} {self.seconds:6.1f} s  {verdict}"


def plant(faults: Sequence[Fault], root: Path, jobs: int) -> Iterator[Outcome]:
    """What becomes of each fault in a copy of `root`, `jobs` of them at a time.

    Raises:
      TableError: a fault does not fit, or names a test that does not exist.
      RunError: a fault breaks an import, or tests fail without any fault.
    """
    for fault in faults:
        fault.planted(root)
        if missing := fault.missing_tests(root):
            raise TableError(f"{fault.name}: no such test: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(prefix="lce-mutation-") as folder:
        tests = dict.fromkeys(test for fault in faults for test in fault.tests)
        if failed := first_failure(_copied(root, Path(folder)), tests):
            raise RunError(f"fails without any fault: {failed}")
        processes = multiprocessing.get_context("fork")
        with ProcessPoolExecutor(jobs, mp_context=processes) as pool:
            yield from pool.map(partial(_outcome, root, Path(folder)), faults)


def _copied(root: Path, folder: Path) -> Path:
    """Return this process's own copy of the tree."""
    copy = folder / f"tree-{os.getpid()}"
    if not copy.exists():
        shutil.copytree(root, copy, ignore=_LEFT_OUT)
    return copy


def _outcome(root: Path, folder: Path, fault: Fault) -> Outcome:
    started, copy = time.monotonic(), _copied(root, folder)
    path, faulty = fault.planted(copy)
    sound = path.read_text("utf-8")
    path.write_text(faulty, "utf-8")
    try:
        killer = first_failure(copy, fault.tests)
        wider = None if killer else first_failure(copy, [fault.folder(copy)])
    except RunError as error:
        raise RunError(f"{fault.name}: {error}") from None
    finally:
        path.write_text(sound, "utf-8")
    if wider and first_failure(copy, [wider]):
        raise RunError(f"fails without any fault: {wider}")
    return Outcome(fault, killer or wider, time.monotonic() - started)


def _selected(table: Path, only: Sequence[str]) -> list[Fault]:
    faults = read_table(table)
    if unknown := set(only) - {fault.name for fault in faults}:
        raise TableError(f"no such fault: {', '.join(sorted(unknown))}")
    return [fault for fault in faults if not only or fault.name in only]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--only", metavar="NAME", action="append", default=[], help="repeatable")
    parser.add_argument("--jobs", metavar="N", type=int, default=1, help="faults at a time")
    parser.add_argument("--table", type=Path, default=TABLE, help="another table of faults")
    parser.add_argument("--root", type=Path, default=ROOT, help="another tree")
    chosen = parser.parse_args(arguments)
    console = Console(highlight=False, markup=False, soft_wrap=True)
    outcomes: list[Outcome] = []
    try:
        faults = _selected(chosen.table, chosen.only)
        for outcome in plant(faults, chosen.root, chosen.jobs):
            outcomes.append(outcome)
            console.print(str(outcome))
    except (TableError, RunError) as error:
        console.print(str(error))
        return 2
    unexpected = [outcome for outcome in outcomes if not outcome.as_documented]
    noticed = sum(outcome.killer is not None for outcome in outcomes)
    console.print(f"{noticed} of {len(outcomes)} noticed, {len(unexpected)} not as documented")
    return 1 if unexpected else 0


if __name__ == "__main__":
    import_libraries()
    sys.exit(main())
