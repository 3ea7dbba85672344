"""Notes (JSON files) of the inputs that the catalog and MLflow's runs were built from.

A note lies beside the file that was built. It maps names to digests of `catalog.origin`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from lce_core.store.odd_files import read_mapping


def noted(note: Path) -> dict[str, str]:
    """Read the digests in a note, by name; empty if the file is missing or unreadable."""
    try:
        return read_mapping(note)
    except (OSError, ValueError):
        return {}


def add_to_note(note: Path, digests: Mapping[str, str]) -> None:
    """Write digests into a note; entries with other names stay. Ignores a failure to write."""
    # Imported here, because readers of notes do not need records.
    from lce_core.store.records import write_json

    with contextlib.suppress(OSError):  # without a note the next call builds again
        write_json(note, {**noted(note), **digests})
