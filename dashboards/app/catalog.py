"""Run queries on the catalog, for the study and base model that the viewer chose in the sidebar.

Results are cached until the catalog file is replaced. Each query opens and closes the file, so that
processes which replace it need not wait.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamlit as st

from catalog.queries import open_catalog, run_query
from dashboards.claims.summary import Summary, summaries
from dashboards.contents import REPORT, Row, queries_of, select
from dashboards.families import Variant

_QUERIES = {**REPORT, **queries_of(Path(__file__).with_name("dashboard.sql"))}


@dataclass(frozen=True)
class Catalog:
    """The catalog at a path. A build may replace the file; each query reads the current file."""

    path: Path

    def summaries(self, study: str) -> tuple[Summary, ...]:
        return _summaries(self.path, self._stamp(), study)

    def rows(self, name: str, **parameters: str | int | bool) -> list[Row]:
        return list(_answer(self.path, self._stamp(), name, tuple(parameters.items())))

    def _stamp(self) -> tuple[int, ...] | None:
        found = self.path.stat() if self.path.exists() else None
        return found and (found.st_ino, found.st_mtime_ns, found.st_size)


@functools.lru_cache(maxsize=64)
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


@dataclass(frozen=True)
class Chosen:
    """The study and base model that the viewer selected; queries return only rows of these."""

    catalog: Catalog
    study: str
    base_model: str
    facts: Row
    """Row of the view `studies`."""

    def rows(self, name: str, **more: str | int | bool) -> list[Row]:
        """Run a query; return the rows of the base model, or all if they have no such column."""
        found = self.catalog.rows(name, study=self.study, **more)
        return [row for row in found if row.get("base_model", self.base_model) == self.base_model]

    def variants(self) -> list[Variant]:
        return list(dict.fromkeys(Variant.of(row) for row in self.rows("overview")))


def choose(catalog: Catalog) -> Chosen | None:
    known = catalog.rows("all_studies")
    if not known:
        return None
    study = picked("study", [row["study"] for row in known], "Study")
    bases = [row["base_model"] for row in select(known, study=study)]
    base = picked("base_model", bases, "Base model") if len(bases) > 1 else bases[0]
    return Chosen(catalog, study, base, select(known, study=study, base_model=base)[0])


def picked(key: str, options: Sequence[str], label: str) -> str:
    """Draw a picker and return its value. URL and session keep the value for the other pages."""
    options = list(dict.fromkeys(options))
    remembered = st.session_state.get(f"last_{key}")
    index = options.index(remembered) if remembered in options else 0
    picked = st.selectbox(label, options, index=index, key=key, bind="query-params")
    st.session_state[f"last_{key}"] = picked
    return str(picked)
