"""Which artifacts there are, from one look at their folders.

Looking up each step of a plan by listing its kind's folder would take time that grows with the
product of what is planned and what is there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lce_core.store.identity import SHORT
from lce_core.store.odd_files import NOT_A_FILE


class Listing:
    """Folders of artifacts by kind and fingerprint, as they were when this was made."""

    def __init__(self, artifacts: Path) -> None:
        self._found: dict[tuple[str, str], Path] = {}
        for kind in _names(artifacts):
            for name in _names(artifacts / kind):
                self._found.setdefault((kind, name[-SHORT:]), artifacts / kind / name)

    @property
    def ids(self) -> set[str]:
        """First digits of all fingerprints that are there."""
        return {short for _, short in self._found}

    def find(self, fingerprint: str, kind: str) -> Path | None:
        """Folder of the artifact with this fingerprint, or None."""
        return self._found.get((kind, fingerprint[:SHORT]))


def find(artifacts: Path, fingerprint: str, kind: str | None = None) -> Path | None:
    """As `Listing.find`, of one artifact, as it is now; of any kind if none is given."""
    for folder in _names(artifacts) if kind is None else (kind,):
        for name in _names(artifacts / folder):
            if name.endswith(f"-{fingerprint[:SHORT]}"):
                return artifacts / folder / name
    return None


def _names(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            # Unfinished attempts begin with a dot.
            names = [entry.name for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        if error.errno not in NOT_A_FILE:
            raise
        return
    yield from names
