"""Notes beside projections: digests by name, in JSON. `catalog.origin` says of what."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from lce_core.store.odd_files import read_mapping


def noted(note: Path) -> dict[str, str]:
    """Return digests by name; empty without a readable note."""
    try:
        return read_mapping(note)
    except (OSError, ValueError):
        return {}


def add_to_note(note: Path, digests: Mapping[str, str]) -> None:
    """Notes these digests; those of other names stay."""
    # Readers, who come here for one note, need nothing of records.
    from lce_core.store.records import write_json

    with contextlib.suppress(OSError):  # without a note the next call makes it again
        write_json(note, {**noted(note), **digests})
