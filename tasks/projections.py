"""The projections of the store, catalog and MLflow.

Both can be deleted at any time and are rebuilt from the store alone. Nothing here loads Prefect.
"""

from __future__ import annotations

import sys
from pathlib import Path

from catalog.build import build_catalog, refresh_catalog
from lce_core.store.artifacts import Store
from tasks import tracking
from tasks.questions import catalog_path, read

# Names of studies are kebab-case by `StudySpec`, so they need no quoting.
COUNTS = "SELECT status, count(*) FROM cells WHERE study = '{study}' GROUP BY ALL ORDER BY ALL"


def record(home: Path, study: str) -> dict[str, int]:
    """Brings catalog and MLflow up to date with the store; returns numbers of cells by status."""
    store = refresh(home)
    _name_broken_plans(store)
    if not tracking.is_current(store, study):
        tracking.project(store, study)
    return dict(read(home, COUNTS.format(study=study)))


def refresh(home: Path) -> Store:
    """Brings the catalog up to date with the store, which it returns."""
    store = Store(home)
    refresh_catalog(store, catalog_path(home))
    return store


def rebuild_catalog(home: Path) -> Path:
    """Builds the catalog from the store and swaps it in; returns its path."""
    store = Store(home)
    _name_broken_plans(store)
    return build_catalog(store, catalog_path(home))


def rebuild_mlflow(home: Path) -> list[str]:
    """Projects every study of the store to MLflow; returns their names."""
    store = Store(home)
    _name_broken_plans(store)
    names = [plan["study"] for plan in store.studies.plans()]
    for name in names:
        tracking.project(store, name)
    return names


def _name_broken_plans(store: Store) -> None:
    """Print a line for each study that is not shown, because its plan cannot be read."""
    for file in store.studies.broken():
        sys.stderr.write(
            f"note: {file} is no plan, so its study is not shown; run the study again, which"
            " writes it anew, or remove its folder\n"
        )
