"""Replace an unusable catalog or MLflow database before a command or a run needs it.

Commands that read the catalog call this module first. It loads the code that builds a catalog only
if there is something to build.
"""

from __future__ import annotations

from pathlib import Path

from catalog.damage import catalog_damage
from tasks.questions import catalog_path


def damage(home: Path) -> str | None:
    """Return why the catalog is unusable, as a phrase that completes "it is ...".

    Return None if the catalog is usable or missing.
    """
    return catalog_damage(catalog_path(home))


def mended(home: Path) -> Path:
    """Return the catalog's path. If its file is damaged or foreign, first rename and rebuild it.

    If the home has no store to rebuild the catalog from, keep the file; the code that opens it
    reports the error.

    Raises:
      StoreError: if the damaged file cannot be renamed.
    """
    path = catalog_path(home)
    if (home / "studies").is_dir() and damage(home):
        from tasks.projections import rebuild_catalog

        rebuild_catalog(home)
    return path


def mend_projections(home: Path) -> None:
    """Rebuild a damaged catalog and rename a damaged MLflow database.

    A run calls this at its start, so that its terminal shows the messages. MLflow's database is
    created again when lce next writes to it.

    Raises:
      StoreError: if a damaged file cannot be renamed.
    """
    from tasks import tracking  # loads pyarrow, which readers of the catalog do not need

    mended(home)
    tracking.set_aside_if_damaged(home)
