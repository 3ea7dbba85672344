"""Read and write notes: JSON files with digests of the catalog's or MLflow's inputs.

A note lies beside the file that was built from these inputs. It maps names to digests, which
`catalog.origin` computes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from lce_core.store.odd_files import read_mapping


def noted(note: Path) -> dict[str, str]:
    """Return the digests in a note, by name; {} if the file is missing or unreadable."""
    try:
        return read_mapping(note)
    except (OSError, ValueError):
        return {}


def add_to_note(note: Path, digests: Mapping[str, str]) -> None:
    """Add digests to a note and keep its entries with other names; ignore a failure to write."""
    # Imported here, because readers of notes do not need records.
    from lce_core.store.records import write_json

    with contextlib.suppress(OSError):  # without a note the next call builds again
        write_json(note, {**noted(note), **digests})
