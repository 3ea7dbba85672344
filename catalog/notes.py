"""JSON notes beside projections, with digests by name. `catalog.origin` defines the digests."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from lce_core.store.odd_files import read_mapping


def noted(note: Path) -> dict[str, str]:
    """Return the noted digests by name; empty if the note is missing or unreadable."""
    try:
        return read_mapping(note)
    except (OSError, ValueError):
        return {}


def add_to_note(note: Path, digests: Mapping[str, str]) -> None:
    """Add digests to the note, keeping those under other names."""
    # Imported here, because readers of notes do not need records.
    from lce_core.store.records import write_json

    with contextlib.suppress(OSError):  # without a note the next call rebuilds the projection
        write_json(note, {**noted(note), **digests})
