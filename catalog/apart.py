"""Answers a statement that a user wrote in a process of its own: `python -m catalog.apart`.

DuckDB's memory limit misses much of what functions of text and lists, and values of gigabytes,
allocate. The kernel counts all of it (RLIMIT_DATA), so the worst statement ends its own process
with an error instead of exhausting the machine. The request goes to standard input as JSON; rows
come back as lines of JSON, with values that JSON lacks as {"type": "text"}.
"""

from __future__ import annotations

import contextlib
import json
import resource
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

from catalog.limits import QUERY_SECONDS, Limits, limits, out_of_memory, too_slow
from lce_core.errors import SpecError, restored

_GRACE_SECONDS = 5.0
"""Longest wait after the time limit, for a statement that DuckDB does not interrupt."""

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
    """Column names and rows of one read-only query, as `catalog.queries.run_query` gives them.

    Args:
      path: The catalog.
      sql: One statement that reads.
      seconds: Time limit.
      most_rows: Rows after which no more are read; None: all of them.
      memory: Bytes that the process may take; None: half of what is free, at most 4 GB.
      most_bytes: Bytes of rows to return; None: an eighth of the memory.
      environment: Variables of the process; None: those of this one.

    Raises:
      SpecError: as `run_query`.
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
    with tempfile.TemporaryDirectory(prefix="lce-sql-") as folder:  # gone even if DuckDB dies
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
            process.kill()  # nothing where it has ended
            process.wait()
    if not is_whole:
        if is_stuck:
            raise too_slow(sql, seconds)
        raise out_of_memory(sql, f"its process ended with {_ending(process.returncode)}", within)
    return columns, rows


def main() -> int:
    """Answer the request on standard input; return the exit code."""
    asked = json.load(sys.stdin)
    within = Limits(**asked["within"])
    tempfile.tempdir = asked["temporary"]
    from catalog.queries import read_blocks  # before the limit: DuckDB itself is no part of a query

    _limit_memory(within.memory)
    try:
        found = read_blocks(
            Path(asked["path"]),
            asked["sql"],
            asked["seconds"],
            most_rows=asked["most_rows"],
            within=within,
        )
        _send({"columns": next(found)})
        for block in found:
            _send({"rows": [[_packed(value) for value in row] for row in block]})
    except SpecError as error:
        _send({"error": error.parts})
    _send({"done": True})
    return 0


def _limit_memory(size: int) -> None:
    """Limit what this process allocates; systems that do not count it keep DuckDB's limit."""
    with contextlib.suppress(ValueError, OSError):  # a lower limit of the user's holds
        resource.setrlimit(resource.RLIMIT_DATA, (size, size))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")


def _received(
    process: subprocess.Popen[str], request: dict[str, Any]
) -> tuple[list[str], Rows, bool]:
    """Columns, rows, and whether the process said all that it had to say."""
    assert process.stdin
    assert process.stdout
    columns: list[str] = []
    rows: Rows = []
    with process.stdout:
        with contextlib.suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(request))
        for line in process.stdout:
            if not line.endswith("\n"):  # it died while it wrote
                break
            message = json.loads(line)
            if "error" in message and (error := restored("SpecError", message["error"])):
                raise error
            if "done" in message:
                return columns, rows, True
            columns = message.get("columns", columns)
            rows += [tuple(_unpacked(value) for value in row) for row in message.get("rows", ())]
    return columns, rows, False


def _ending(code: int) -> str:
    told = f"exit code {code}" if code >= 0 else signal.Signals(-code).name
    return f"{told}, usually for lack of memory"


_READ: dict[str, Callable[[Any], Any]] = {
    "datetime": datetime.fromisoformat,
    "date": date.fromisoformat,
    "time": time.fromisoformat,
    "timedelta": lambda parts: timedelta(*parts),
    "Decimal": Decimal,
    "UUID": UUID,
    "bytes": bytes.fromhex,
    "tuple": lambda items: tuple(map(_unpacked, items)),
    "dict": lambda pairs: {_unpacked(key): _unpacked(value) for key, value in pairs},
    "str": str,
}
"""Values that JSON lacks, by the name of their type."""


def _packed(value: Any) -> Any:
    """A value as JSON has it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_packed(item) for item in value]
    return {_type_name(value): next(_parts(value))}


def _type_name(value: Any) -> str:
    name = type(value).__name__
    return name if name in _READ else "str"


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield [[_packed(key), _packed(item)] for key, item in value.items()]
    elif isinstance(value, tuple):
        yield [_packed(item) for item in value]
    elif isinstance(value, datetime | date | time):
        yield value.isoformat()
    elif isinstance(value, timedelta):
        yield [value.days, value.seconds, value.microseconds]
    elif isinstance(value, bytes | bytearray):
        yield bytes(value).hex()
    else:
        yield str(value)


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if not isinstance(value, dict):
        return value
    ((kind, parts),) = value.items()
    return _READ[kind](parts)


if __name__ == "__main__":
    sys.exit(main())
