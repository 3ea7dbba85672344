"""Run a user's SQL statement in a separate process: `python -m catalog.apart`.

DuckDB's own memory limit ignores large values and much of the memory of text and list functions.
The kernel's limit for a process (RLIMIT_DATA) counts all memory: an expensive statement fails in
its own process and does not exhaust the machine's memory. The request is pickled on standard
input, column names and blocks of rows on standard output.
"""

from __future__ import annotations

import contextlib
import pickle
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalog.limits import QUERY_SECONDS, limits, out_of_memory, too_slow
from lce_core.errors import LceError

_GRACE_SECONDS = 5.0
"""A process that exceeds its time limit by this much is killed, because DuckDB cannot interrupt
every statement."""

Rows = list[tuple[Any, ...]]


def answer_apart(
    path: Path,
    sql: str,
    seconds: float = QUERY_SECONDS,
    *,
    most_rows: int | None = None,
    memory: int | None = None,
    most_bytes: int | None = None,
    environment: Mapping[str, str] | None = None,
) -> tuple[list[str], Rows]:
    """Run one read-only query in a child process; return its column names and its rows.

    Args:
      most_rows: Read only this many rows; None: all rows.
      memory: Memory limit of the process in bytes; None: half of the free memory, at most 4 GB.
      most_bytes: Maximum size of the rows in bytes; None: an eighth of the memory limit.
      environment: Environment variables of the child process; None: those of this process.

    Raises:
      SpecError, StoreError: if `catalog.queries.read_blocks` would raise it for this statement.
    """
    within = limits(memory)
    if most_bytes is not None:
        within = replace(within, result=min(within.result, most_bytes))
    request: dict[str, Any] = {
        "path": path,
        "sql": sql,
        "limit": seconds,
        "most_rows": most_rows,
        "within": within,
    }
    with tempfile.TemporaryDirectory(prefix="lce-sql-") as folder:  # deleted even if DuckDB crashes
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "catalog.apart"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment and dict(environment),
        )
        stuck = threading.Timer(seconds + _GRACE_SECONDS, process.kill)
        stuck.daemon = True
        stuck.start()
        try:
            columns, rows, is_whole = _received(process, (folder, request))
        finally:
            is_stuck = not stuck.is_alive()
            stuck.cancel()
            process.kill()  # no effect after a normal exit
            process.wait()
    if not is_whole:
        if is_stuck:
            raise too_slow(sql, seconds)
        raise out_of_memory(sql, f"its process ended with {_ending(process.returncode)}", within)
    return columns, rows


def main() -> int:
    """Run the query that standard input describes, write its rows, and return 0.

    An error of the query is written too, for the parent process to raise.
    """
    tempfile.tempdir, request = pickle.load(sys.stdin.buffer)
    # Import before the limit is set: a failure of the import could not be sent to the parent.
    from catalog.queries import read_blocks

    _limit_memory(request["within"].memory)
    try:
        for block in read_blocks(**request):
            _send(block)
    except LceError as error:
        _send(error)
    _send(None)
    return 0


def _limit_memory(size: int) -> None:
    """Limit this process to `size` bytes of allocations and forbid core dumps.

    Some systems ignore the limit; DuckDB's own memory limit still applies there.
    """
    with contextlib.suppress(ValueError, OSError):  # a lower limit set by the user stays
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _send(message: Any) -> None:
    sys.stdout.buffer.write(pickle.dumps(message))


def _received(
    process: subprocess.Popen[bytes], request: tuple[str, dict[str, Any]]
) -> tuple[list[str], Rows, bool]:
    """Send the request to the process; return column names, rows, and True if all rows arrived.

    The last value is False if the process died before it had sent every row.
    """
    assert process.stdin
    assert process.stdout
    columns: list[str] = []
    rows: Rows = []
    with process.stdout:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(pickle.dumps(request))
        with contextlib.suppress(EOFError, pickle.UnpicklingError):  # it died while writing
            while (message := pickle.load(process.stdout)) is not None:
                if isinstance(message, LceError):
                    raise message
                if columns:
                    rows += message
                else:
                    columns = message
            return columns, rows, True
    return columns, rows, False


def _ending(code: int) -> str:
    ending = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return f"{ending}, usually for lack of memory"


if __name__ == "__main__":
    sys.exit(main())
