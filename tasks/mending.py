"""Makes projections that cannot be used again, before a command or a run needs them.

Commands that read the catalog come here first. The code that builds one is loaded only if there is
something to build.
"""

from __future__ import annotations

from pathlib import Path

from catalog.damage import catalog_damage
from tasks.questions import catalog_path


def damage(home: Path) -> str | None:
    """Return what is wrong with the catalog, to follow "it is"; None if nothing is, or no file."""
    return catalog_damage(catalog_path(home))


def mended(home: Path) -> Path:
    """Return the catalog's path; a damaged or foreign file there is set aside and made again.

    Without a store there is nothing to make it from: the file stays, and whoever opens it says what
    is wrong.

    Raises:
      StoreError: the damaged file cannot be renamed.
    """
    path = catalog_path(home)
    if (home / "studies").is_dir() and damage(home):
        from tasks.projections import rebuild_catalog

        rebuild_catalog(home)
    return path


def mend_projections(home: Path) -> None:
    """Set damaged projections aside as a run starts, so that its terminal shows the line.

    Raises:
      StoreError: a damaged file cannot be renamed.
    """
    from tasks import tracking  # pyarrow, which readers of the catalog do not need

    mended(home)
    tracking.set_aside_if_damaged(home)
