"""Run a user's SQL statement in a separate process: `python -m catalog.apart`.

DuckDB's own memory limit ignores large values and much of the memory of text and list functions.
The kernel's limit for a process (RLIMIT_DATA) counts all memory: an expensive statement fails in
its own process and does not exhaust the machine's memory. The request is JSON on standard input.
The process prints the rows as lines of JSON. A value whose type JSON lacks is written as
{TYPE: PARTS}, such as {"date": "2026-01-31"} (see `_packed`).
"""

import contextlib
import json
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from catalog.limits import QUERY_SECONDS, Limits, limits, out_of_memory, too_slow
from lce_core.errors import LceError, restored

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

    The process may use `memory` bytes (None: half of the free memory, at most 4 GB), and the rows
    `most_bytes` (None: an eighth of that). Raises the errors of `catalog.queries.read_blocks`.
    """
    within = limits(memory)
    if most_bytes is not None:
        within = replace(within, result=min(within.result, most_bytes))
    request: dict[str, Any] = {
        "path": str(path),
        "sql": sql,
        "seconds": seconds,
        "most_rows": most_rows,
    }
    with tempfile.TemporaryDirectory(prefix="lce-sql-") as folder:  # deleted even if DuckDB crashes
        request |= {"temporary": folder, "within": asdict(within)}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "catalog.apart"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment and dict(environment),
            encoding="utf-8",
        )
        stuck = threading.Timer(seconds + _GRACE_SECONDS, process.kill)
        stuck.daemon = True
        stuck.start()
        try:
            columns, rows, is_whole = _received(process, request)
        finally:
            is_stuck = not stuck.is_alive()
            stuck.cancel()
            process.kill()  # no effect after a normal exit
            process.wait()
    if not is_whole:
        if is_stuck:
            raise too_slow(sql, seconds)
        code = process.returncode
        ending = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
        why = f"its process ended with {ending}, usually for lack of memory"
        raise out_of_memory(sql, why, within)
    return columns, rows


def main() -> int:
    """Run the query that standard input describes and print its rows or its error as JSON lines."""
    request = json.load(sys.stdin)
    within = Limits(**request["within"])
    tempfile.tempdir = request["temporary"]
    # Import before the limit is set: a failure of the import could not be reported as JSON.
    from catalog.queries import read_blocks

    # Some systems ignore the limit; DuckDB's own memory limit still applies there.
    with contextlib.suppress(ValueError, OSError):  # a lower limit set by the user stays
        resource.setrlimit(resource.RLIMIT_DATA, (within.memory, within.memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        path, sql, seconds = (request[key] for key in ("path", "sql", "seconds"))
        found = read_blocks(Path(path), sql, seconds, most_rows=request["most_rows"], within=within)
        _send({"columns": next(found)})
        for block in found:
            _send({"rows": [[_packed(value) for value in row] for row in block]})
    except LceError as error:
        _send({"error": [type(error).__name__, error.parts]})
    _send({"done": True})
    return 0


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")


def _received(
    process: subprocess.Popen[str], request: dict[str, Any]
) -> tuple[list[str], Rows, bool]:
    """Send the request; return column names, rows, and False if the process died before the end."""
    assert process.stdin
    assert process.stdout
    columns: list[str] = []
    rows: Rows = []
    with process.stdout:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(request))
        for line in process.stdout:
            if not line.endswith("\n"):  # the process died while writing
                break
            message = json.loads(line)
            if "error" in message and (error := restored(*message["error"])):
                raise error
            if "done" in message:
                return columns, rows, True
            columns = message.get("columns", columns)
            rows += [tuple(_unpacked(value) for value in row) for row in message.get("rows", ())]
    return columns, rows, False


_FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "datetime": (datetime.isoformat, datetime.fromisoformat),
    "date": (date.isoformat, date.fromisoformat),
    "time": (time.isoformat, time.fromisoformat),
    "timedelta": (lambda v: [v.days, v.seconds, v.microseconds], lambda parts: timedelta(*parts)),
    "Decimal": (str, Decimal),
    "UUID": (str, UUID),
    "bytes": (bytes.hex, bytes.fromhex),
    "tuple": (lambda v: [_packed(one) for one in v], lambda items: tuple(map(_unpacked, items))),
    "dict": (
        lambda v: [[_packed(key), _packed(item)] for key, item in v.items()],
        lambda pairs: {_unpacked(key): _unpacked(value) for key, value in pairs},
    ),
    "str": (str, str),
}
"""Functions that convert a value to its JSON form and back, by the name of the value's type."""


def _packed(value: Any) -> Any:
    """Return the value in a form that JSON can represent; `_unpacked` restores the value."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_packed(item) for item in value]
    name = type(value).__name__
    name = name if name in _FORMS else "str"
    return {name: _FORMS[name][0](value)}


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, parts),) = value.items()
    return _FORMS[kind][1](parts)


if __name__ == "__main__":
    sys.exit(main())
