"""Build the catalog and the MLflow database from the store.

Both are projections: lce rebuilds deleted or damaged ones from the store alone. If one study's
files are invalid, the other studies are still shown. This module does not load Prefect.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from catalog.build import build_catalog, refresh_catalog
from lce_core.errors import LceError, ServiceError
from lce_core.store.artifacts import Store
from tasks import tracking
from tasks.questions import read

# `StudySpec` restricts study names to kebab-case, so they need no quoting in SQL.
COUNTS = "SELECT status, count(*) FROM cells WHERE study = '{study}' GROUP BY ALL ORDER BY ALL"

_CONTENT_ERRORS = (ValueError, KeyError, TypeError, AttributeError)
"""Errors of an invalid plan or record: skip its study, but write the others."""


def record(home: Path, study: str, mlflow: str | None = None) -> dict[str, int]:
    """Update catalog and MLflow from the store; return the study's number of cells by status.

    If a team's MLflow server (URL `mlflow`; None for the store's own database) does not answer,
    print a line and go on: the store has the results.
    """
    store = refresh(home)
    if not tracking.is_current(store, study, mlflow):
        try:
            _project(store, [study], mlflow)
            # If MLflow's database was just created, write the other studies to it as well. A
            # team's server gets only the studies that run.
            _project(store, [] if mlflow else tracking.unprojected(store), mlflow)
        except ServiceError as error:
            sys.stderr.write(f"lce: {error}\n")
    return dict(read(home, COUNTS.format(study=study)))


def refresh(home: Path) -> Store:
    store = Store(home)
    refresh_catalog(store)
    return store


def rebuild_catalog(home: Path) -> Path:
    return build_catalog(Store(home))


def rebuild_mlflow(home: Path, mlflow: str | None = None) -> list[str]:
    """Write every study to MLflow; return the names of those that could be written."""
    store = Store(home)
    return _project(store, [plan["study"] for plan in store.studies.plans()], mlflow)


def restore_mlflow(home: Path) -> None:
    if not tracking.has_usable_database(home):
        tracking.initialise(home)
        rebuild_mlflow(home)


def _project(store: Store, studies: Iterable[str], mlflow: str | None) -> list[str]:
    """Write studies to MLflow and return the names of those that could be written.

    For a study with invalid content, print a line. Other errors, such as a full disk, are raised.
    """
    shown = []
    for study in studies:
        try:
            tracking.project(store, study, mlflow)
        except LceError:
            raise
        except Exception as error:
            is_rejected = getattr(error, "error_code", "") == tracking.REJECTED
            if not (is_rejected or isinstance(error, _CONTENT_ERRORS)):
                raise
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            sys.stderr.write(f"lce: MLflow does not show study {study}: {what}\n")
            continue
        shown.append(study)
    return shown
