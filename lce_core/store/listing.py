"""Find artifact folders by fingerprint; a `Listing` reads their names once for many steps."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lce_core.store.identity import ID_DIGITS
from lce_core.store.odd_files import NOT_A_FILE


class Listing:
    """A snapshot of the artifact folders by step kind and id."""

    def __init__(self, artifacts: Path) -> None:
        self._found: dict[tuple[str, str], Path] = {}
        for kind in _names(artifacts):
            for name in _names(artifacts / kind):
                self._found.setdefault((kind, name[-ID_DIGITS:]), artifacts / kind / name)

    @property
    def ids(self) -> set[str]:
        return {step_id for _, step_id in self._found}

    def find(self, fingerprint: str, kind: str) -> Path | None:
        return self._found.get((kind, fingerprint[:ID_DIGITS]))


def find(artifacts: Path, fingerprint: str, kind: str | None = None) -> Path | None:
    """Return the artifact folder with this fingerprint or id and kind; None without one."""
    for folder in _names(artifacts) if kind is None else (kind,):
        for name in _names(artifacts / folder):
            if name.endswith(f"-{fingerprint[:ID_DIGITS]}"):
                return artifacts / folder / name
    return None


def _names(folder: Path) -> Iterator[str]:
    try:
        with os.scandir(folder) as found:
            # Names of unfinished attempts start with a dot.
            names = [entry.name for entry in found if not entry.name.startswith(".")]
    except OSError as error:
        if error.errno not in NOT_A_FILE:
            raise
        return
    yield from names
