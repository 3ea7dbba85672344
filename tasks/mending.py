"""Replace an unusable catalog or MLflow database before a command or a run needs it.

Commands that read the catalog call this module first. To keep them and `lce worker` light, DuckDB
and the code that builds a catalog are imported only if they are needed.
"""

import os
from pathlib import Path

from catalog import catalog_path


def damage(home: Path) -> str | None:
    """Return why the catalog is unusable, to complete "it is ..."; None if usable or missing."""
    path = catalog_path(home)
    if not os.path.lexists(path):
        return None
    from catalog.damage import catalog_damage  # loads DuckDB

    return catalog_damage(path)


def mended(home: Path) -> Path:
    """Return the catalog's path. If the file is unusable, first rename it and build a new one.

    Without a store the file stays; the code that opens it then reports the error.
    """
    path = catalog_path(home)
    if (home / "studies").is_dir() and damage(home):
        from tasks.projections import rebuild_catalog

        rebuild_catalog(home)
    return path


def mend_projections(home: Path) -> None:
    """Rebuild an unusable catalog and rename an unusable MLflow database.

    A run calls this at its start, so that the user sees the messages in the terminal.
    """
    from tasks import tracking  # loads pyarrow, which readers of the catalog do not need

    mended(home)
    tracking.set_aside_if_damaged(home)
