"""Build the catalog and the MLflow database from the store.

Both are projections: they can be deleted at any time, and are rebuilt from the store alone. A
damaged one is renamed and rebuilt. A study that cannot be shown never hides another one. This
module does not load Prefect.
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

# `StudySpec` restricts study names to kebab-case, so they need no quoting in SQL.
COUNTS = "SELECT status, count(*) FROM cells WHERE study = '{study}' GROUP BY ALL ORDER BY ALL"

_UNSHOWN = (ValueError, KeyError, TypeError, AttributeError)
"""Errors that invalid content of a plan or a record can cause; they skip only its study."""
_REFUSED = "INVALID_PARAMETER_VALUE"
"""MLflow's error code for a text or number it rejects; it skips only the study."""


def record(home: Path, study: str) -> dict[str, int]:
    """Update catalog and MLflow from the store; return the study's number of cells by status."""
    store = refresh(home)
    if not tracking.is_current(store, study):
        _project(store, [study])
        # A newly made MLflow database has lost the other studies, so project these too.
        _project(store, tracking.unprojected(store))
    return dict(read(home, COUNTS.format(study=study)))


def refresh(home: Path) -> Store:
    """Update the catalog from the store, and return the store."""
    store = Store(home)
    refresh_catalog(store, catalog_path(home))
    return store


def rebuild_catalog(home: Path) -> Path:
    """Build the catalog from the store and swap it in; return its path."""
    store = Store(home)
    return build_catalog(store, catalog_path(home))


def rebuild_mlflow(home: Path) -> list[str]:
    """Write every study of the store to MLflow; return the names of those that could be written."""
    store = Store(home)
    return _project(store, [plan["study"] for plan in store.studies.plans()])


def restore_mlflow(home: Path) -> None:
    """Create MLflow's database with all studies, unless a usable one exists."""
    if not tracking.is_here(home):
        tracking.initialise(home)
        rebuild_mlflow(home)


def _project(store: Store, studies: Iterable[str]) -> list[str]:
    """Write each study to MLflow, print a line for each that fails, return the names of the rest.

    Only errors of a study's own content are caught; others, such as a full disk, are raised.
    """
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
