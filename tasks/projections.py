"""The projections of the store, catalog and MLflow.

Both can be deleted at any time and are rebuilt from the store alone. A damaged one is set aside and
made again, and what cannot be shown of one study never hides another. Nothing here loads Prefect.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from catalog.build import build_catalog, refresh_catalog
from lce_core.errors import LceError
from lce_core.store.artifacts import Store
from tasks import tracking
from tasks.questions import catalog_path, read

# Names of studies are kebab-case by `StudySpec`, so they need no quoting.
COUNTS = "SELECT status, count(*) FROM cells WHERE study = '{study}' GROUP BY ALL ORDER BY ALL"

_UNSHOWN = (ValueError, KeyError, TypeError, AttributeError)
"""Errors about the content of a plan or a record."""
_REFUSED = "INVALID_PARAMETER_VALUE"
"""Code of MLflow's error about a text or number that it does not take."""


def record(home: Path, study: str) -> dict[str, int]:
    """Brings catalog and MLflow up to date with the store; returns numbers of cells by status."""
    store = refresh(home)
    if not tracking.is_current(store, study):
        _project(store, [study])
        # An MLflow database made anew has lost the other studies.
        _project(store, tracking.unprojected(store))
    return dict(read(home, COUNTS.format(study=study)))


def refresh(home: Path) -> Store:
    """Brings the catalog up to date with the store, which it returns."""
    store = Store(home)
    refresh_catalog(store, catalog_path(home))
    return store


def rebuild_catalog(home: Path) -> Path:
    """Builds the catalog from the store and swaps it in; returns its path."""
    store = Store(home)
    return build_catalog(store, catalog_path(home))


def rebuild_mlflow(home: Path) -> list[str]:
    """Projects every study of the store to MLflow; returns the names of those that it shows."""
    store = Store(home)
    return _project(store, [plan["study"] for plan in store.studies.plans()])


def restore_mlflow(home: Path) -> None:
    """Make MLflow's database if there is none that can be used, with all studies of the store."""
    if not tracking.is_here(home):
        tracking.initialise(home)
        rebuild_mlflow(home)


def _project(store: Store, studies: Iterable[str]) -> list[str]:
    """Project each study that can be shown; print a line about each that cannot."""
    shown = []
    for study in studies:
        try:
            tracking.project(store, study)
        except LceError:
            raise
        except Exception as error:
            if not (isinstance(error, _UNSHOWN) or getattr(error, "error_code", "") == _REFUSED):
                raise
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            sys.stderr.write(f"lce: MLflow does not show study {study}: {what}\n")
            continue
        shown.append(study)
    return shown
