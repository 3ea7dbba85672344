"""The projections of the store, catalog and MLflow, and the questions asked of the catalog.

Both projections can be deleted at any time and are rebuilt from the store alone. Nothing here loads
Prefect, so that `lce sql` answers at once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catalog.build import CATALOG, build_catalog, refresh_catalog
from catalog.formatting import format_rows
from catalog.queries import run_query
from lce_core.store.artifacts import Store
from tasks import tracking

# Names of studies are kebab-case by `StudySpec`, so they need no quoting.
COUNTS = "SELECT status, count(*) FROM cells WHERE study = '{study}' GROUP BY ALL ORDER BY ALL"


def record(home: Path, study: str) -> dict[str, int]:
    """Brings catalog and MLflow up to date with the store; returns numbers of cells by status."""
    store = Store(home)
    refresh_catalog(store, catalog_path(home))
    if not tracking.is_current(store, study):
        tracking.project(store, study)
    return dict(read(home, COUNTS.format(study=study)))


def catalog_path(home: Path) -> Path:
    """The file of the results catalog."""
    return home / CATALOG


def rebuild_catalog(home: Path) -> Path:
    """Builds the catalog from the store and swaps it in; returns its path."""
    return build_catalog(Store(home), catalog_path(home))


def rebuild_mlflow(home: Path) -> list[str]:
    """Projects every study of the store to MLflow; returns their names."""
    store = Store(home)
    names = [plan["study"] for plan in store.plans()]
    for name in names:
        tracking.project(store, name)
    return names


def answer(home: Path, sql: str, form: str) -> str:
    """The answer to a reading SQL statement, as text in form "table", "csv" or "json"."""
    columns, rows = run_query(catalog_path(home), sql)
    return format_rows(columns, rows, form)


def read(home: Path, sql: str) -> list[tuple[Any, ...]]:
    """Rows of a reading SQL statement over the catalog."""
    return run_query(catalog_path(home), sql)[1]
