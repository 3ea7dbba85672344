"""Limits of memory, temporary files and result size for SQL statements."""

from __future__ import annotations

import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from catalog import quoted
from lce_core import formats
from lce_core.errors import SpecError

if TYPE_CHECKING:
    import duckdb

QUERY_SECONDS = 60.0
MAX_MEMORY_BYTES = 4 << 30
"""Upper bound of the default memory limit of a query, however much memory is free."""
MIN_MEMORY_BYTES = 256 << 20
"""Lower bound of the memory limit: Python and DuckDB use 100 MB before they read a row."""
_SHARE_OF_FREE_MEMORY = 0.5
_SHARE_OF_FREE_DISK = 0.25
_SHARE_OF_DUCKDB = 0.6
"""DuckDB's own memory limit as a share of its process's limit. It is lower, because DuckDB does not
count every allocation."""
_SHARE_OF_RESULT = 0.125
"""Maximum size of a result as a share of the memory limit. It is small because formatting holds up
to four copies: rows, cell texts, aligned lines and the whole text."""
_MORE = "select fewer rows or columns, or allow more with `lce sql --memory 8GB`"
OFFLINE: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}
"""Settings of every connection: DuckDB must not load extensions from the network."""
_CGROUP = Path("/sys/fs/cgroup")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


@dataclass(frozen=True)
class Limits:
    """Limits in bytes on the memory, temporary files and result of one SQL statement."""

    memory: int
    """Memory limit of the process that runs the statement."""
    spill: int
    """Size limit of the temporary files that DuckDB writes when its memory is full."""
    result: int
    """Size limit of the result's rows as Python objects."""

    def apply(self, connection: duckdb.DuckDBPyConnection, spill_folder: Path) -> None:
        # Use SET: DuckDB 2.0 ignores the folder's size limit when passed to `duckdb.connect`.
        connection.execute(f"SET memory_limit = '{int(self.memory * _SHARE_OF_DUCKDB)}B'")
        connection.execute(f"SET temp_directory = {quoted(spill_folder)}")
        connection.execute(f"SET max_temp_directory_size = '{self.spill}B'")


def limits(memory: int | None = None, disk: Path | None = None) -> Limits:
    """Return limits for one statement, from the memory and disk that are free now.

    The default `memory` is half of the free memory, from 256 MB to 4 GB. `disk` is a folder on the
    disk for temporary files.
    """
    if memory is None:
        share = int(free_memory() * _SHARE_OF_FREE_MEMORY)
        memory = max(MIN_MEMORY_BYTES, min(MAX_MEMORY_BYTES, share))
    free_disk = shutil.disk_usage(disk or tempfile.gettempdir()).free
    spill = min(2 * memory, int(free_disk * _SHARE_OF_FREE_DISK))
    return Limits(memory, spill, int(memory * _SHARE_OF_RESULT))


def free_memory(cgroup: Path = _CGROUP) -> int:
    """Return the free memory of the machine or of its container, whichever is less, in bytes."""
    free = int(psutil.virtual_memory().available)
    try:
        allowed = int((cgroup / "memory.max").read_text(encoding="ascii"))
        used = int((cgroup / "memory.current").read_text(encoding="ascii"))
        stat = (cgroup / "memory.stat").read_text(encoding="ascii")
    except (OSError, ValueError):  # no cgroup file, or "max": no container limit
        return free
    # The kernel counts the page cache as used but drops it when memory is short.
    cached = re.search(r"^file (\d+)$", stat, re.MULTILINE)
    return min(free, max(0, allowed - used + (int(cached[1]) if cached else 0)))


def bytes_of(size: str, option: str) -> int:
    """Parse a size such as `8GB` or `512MB` into bytes; refuse less than 256 MB."""
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,9})?) ?([KMGT]?)I?B?", size.strip().upper())
    number = int(float(found[1]) * _UNITS[found[2]]) if found else 0
    if number < MIN_MEMORY_BYTES:
        raise SpecError(
            option,
            repr(size),
            f"a size of at least {formats.size(MIN_MEMORY_BYTES)}, such as 8GB",
            "correct the size, or omit the option for half of the free memory, at most 4 GB",
        )
    return number


def too_slow(sql: str, seconds: float) -> SpecError:
    return SpecError(
        "SQL",
        f"no result of {sql} after {seconds:g} s",
        f"a query that takes at most {seconds:g} s",
        "add conditions so that the query reads fewer rows, or add a LIMIT",
    )


def out_of_memory(sql: str, message: str, within: Limits) -> SpecError:
    return SpecError(
        "SQL",
        f"{sql} ({message})",
        f"a query that needs at most {formats.size(within.memory)} of memory and"
        f" {formats.size(within.spill)} of temporary files",
        _MORE,
    )


def too_large(sql: str, num_rows: int, within: Limits) -> SpecError:
    return SpecError(
        "SQL",
        f"{sql} (more than {formats.size(within.result)} in the first {num_rows:,} rows)",
        f"a result of at most {formats.size(within.result)}",
        _MORE,
    )
