"""Measure the toy study: first run, rerun with everything done, `lce plan` and `lce sql`.

The script runs `lce run toy` in an empty store and again, and checks that the second run computed
nothing and did not change the catalog. Times are wall seconds of whole commands; quick commands run
five times, and the median counts.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from measuring import Row, at_most, measure

from tests.support.digests import catalog_digest
from tests.support.studies import computed

LCE = [sys.executable, "-c", "from lce.cli import main; main()"]
SQL = "SELECT method, frozen, avg(value) FROM scores GROUP BY ALL"


class Ran(NamedTuple):
    """Wall and CPU seconds, peak memory in MB and output of a command."""

    wall: float
    cpu: float
    megabytes: int
    output: str


def rows(options: Namespace) -> Iterator[Row]:
    home = options.folder / "home"
    first, again = run_twice([options.study], home)
    yield row(f"first run, {computed(first.output):,} steps, s", first.wall, None)
    yield row("run with everything done, s", again.wall, 15.0)
    for arguments, limit in (["plan", options.study], 5.0), (["sql", SQL], 2.0):
        seconds = [run([*LCE, *arguments], home).wall for _ in range(5)]
        yield row(f"lce {arguments[0]}, s", statistics.median(seconds), limit)


def row(what: str, value: float, limit: float | None) -> Row:
    return {"what": what, "measured": value, "limit": at_most(value, limit)}


def run_twice(arguments: list[str], home: Path) -> tuple[Ran, Ran]:
    """Run a study again when everything is done, which must change nothing."""
    first = run([*LCE, "run", *arguments], home)
    digest = catalog_digest(home / "catalog.duckdb")
    again = run([*LCE, "run", *arguments], home)
    assert computed(again.output) == 0, again.output
    assert catalog_digest(home / "catalog.duckdb") == digest
    return first, again


def run(command: list[str], home: Path, **variables: str) -> Ran:
    """Run a command that must succeed, without the user's settings of Prefect and MLflow."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREFECT_", "MLFLOW_"))}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            env={**kept, **variables, "LCE_HOME": str(home)},
            cwd=home.parent,  # a folder without Prefect settings
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
        assert process.stdout
        output = process.stdout.read()
        _, status, used = os.wait4(process.pid, 0)  # with the memory of this process alone
        wall = time.perf_counter() - began
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        assert process.returncode == 0, errors.read()[-2000:]
    return Ran(wall, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, output)


if __name__ == "__main__":
    measure(__doc__, rows, study="toy")
