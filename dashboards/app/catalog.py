"""Run queries on the catalog, and cache their results until the catalog file is replaced.

Each query opens and closes the file, so that processes which replace it need not wait.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from catalog.queries import open_catalog, run_query
from dashboards.claims.summary import Summary, summaries
from dashboards.contents import REPORT, Row, queries_of

_QUERIES = {**REPORT, **queries_of(Path(__file__).with_name("dashboard.sql"))}
_MAX_CACHED_RESULTS = 64


@dataclass(frozen=True)
class Catalog:
    """The catalog at a path. A build may replace the file; each query reads the current file."""

    path: Path

    def written(self) -> datetime:
        """Return the catalog's modification time in UTC."""
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)

    def summaries(self, study: str) -> tuple[Summary, ...]:
        """Return what a study came to, for each base model."""
        return _summaries(self.path, self._stamp(), study)

    def rows(self, name: str, **parameters: str | int | bool) -> list[Row]:
        """Run the query `name` of `dashboard.sql` or else of `dashboards/report.sql`."""
        return list(_answer(self.path, self._stamp(), name, tuple(parameters.items())))

    def _stamp(self) -> tuple[int, ...] | None:
        found = self.path.stat() if self.path.exists() else None
        return found and (found.st_ino, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=_MAX_CACHED_RESULTS)
def _answer(
    path: Path, stamp: tuple[int, ...] | None, name: str, parameters: tuple[tuple[str, Any], ...]
) -> tuple[Row, ...]:
    del stamp  # part of the cache key: differs after the file is replaced
    columns, rows = run_query(path, _QUERIES[name], parameters=dict(parameters))
    return tuple(dict(zip(columns, row, strict=True)) for row in rows)


@functools.lru_cache(maxsize=8)
def _summaries(path: Path, stamp: tuple[int, ...] | None, study: str) -> tuple[Summary, ...]:
    del stamp  # part of the cache key: differs after the file is replaced
    with open_catalog(path) as connection:
        return tuple(summaries(connection, study))
