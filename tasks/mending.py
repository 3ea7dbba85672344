"""Rebuild projections that are unusable, before a command or a run needs them.

Commands that read the catalog call this module first. It loads the code that builds a catalog only
if there is something to build.
"""

from __future__ import annotations

from pathlib import Path

from catalog.damage import catalog_damage
from tasks.questions import catalog_path


def damage(home: Path) -> str | None:
    """Return the catalog's damage as text that follows "it is"; None if undamaged or absent."""
    return catalog_damage(catalog_path(home))


def mended(home: Path) -> Path:
    """Return the catalog's path; first set a damaged or foreign file aside and rebuild it.

    Without a store there is no source to rebuild from. The file then stays, and whoever opens it
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
    """Set damaged projections aside when a run starts, so that its terminal shows the message.

    Raises:
      StoreError: if a damaged file cannot be renamed.
    """
    from tasks import tracking  # loads pyarrow, which readers of the catalog do not need

    mended(home)
    tracking.set_aside_if_damaged(home)
