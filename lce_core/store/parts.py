"""Split a long step, such as a cell, into parts that several workers compute and commit.

    home/progress/<fingerprint12>/order.json        the requested parts
    home/progress/<fingerprint12>/<name>.arrays     a finished part
    home/leases/<fingerprint12>.<name>.json         the lease of a part

The worker that computes the step requests its parts. Any worker, that one included, may compute a
part after it acquires the part's lease. A part contains a digest and is renamed into place.
Committing the step removes its parts with its other progress. `lce_core.store.garbage` removes
parts of steps that are never finished.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from lce_core.store.array_files import Arrays, from_bytes, to_bytes
from lce_core.store.lease import Lease, is_held
from lce_core.store.odd_files import make_folder, put, read_file, read_mapping
from lce_core.store.records import sync, write_json

ORDER = "order.json"
PART_LEASES = "*.*.json"
"""Glob pattern of part leases in the folder of leases; names of step leases have only one dot."""


class Parts:
    """The parts of one step.

    Args:
      folder: The step's progress folder.
      leases: The store's folder of leases.
    """

    def __init__(self, folder: Path, leases: Path) -> None:
        self.folder, self._leases = folder, leases

    def open(self) -> None:
        """Create the step's progress folder, into which `ask` and `write` write."""
        make_folder(self.folder)

    def ask(self, order: Mapping[str, Any]) -> None:
        """Request parts, replacing an earlier request.

        Args:
          order: JSON object; the keys of its `parts` are the names of the parts.
        """
        write_json(self.folder / ORDER, order)

    def order(self) -> dict[str, Any] | None:
        """Return the object last passed to `ask`; None if there is none or its file is damaged."""
        with contextlib.suppress(OSError, ValueError):
            order = read_mapping(self.folder / ORDER)
            return order if isinstance(order.get("parts"), dict) else None
        return None

    def left(self) -> dict[str, bool]:
        """Return the requested parts that are not committed, by name.

        The value is True if a live worker is computing the part.
        """
        order = self.order()
        names = order["parts"] if order else ()
        return {name: self._is_held(name) for name in names if not self.has(name)}

    def free(self) -> list[str]:
        """Return the names of the requested parts that no one has committed or is computing."""
        return [name for name, is_held in self.left().items() if not is_held]

    def has(self, name: str) -> bool:
        """Return True if the part's file exists; the content is not verified."""
        return self._file(name).is_file()

    def read(self, name: str) -> dict[str, NDArray[Any]] | None:
        """Read a part; return None if it is missing or damaged."""
        with contextlib.suppress(OSError):
            return from_bytes(read_file(self._file(name)))
        return None

    def write(self, name: str, arrays: Arrays) -> None:
        """Commit a part.

        Raises:
          FileNotFoundError: if the progress folder is gone because the step was committed.
          OSError: if the file cannot be written, for example on a full disk; the temporary file is
            removed.
        """
        file = self._file(name)
        aside = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}")
        try:
            aside.write_bytes(to_bytes(arrays))
            sync(aside)
            put(aside, file)
        finally:
            aside.unlink(missing_ok=True)
        sync(self.folder)

    def lease(self, name: str) -> Lease | None:
        """Acquire the lease of a part; return None while another live process holds it."""
        return Lease.acquire(self._leases, self._lease(name))

    def _is_held(self, name: str) -> bool:
        return is_held(self._leases, self._lease(name))

    def _lease(self, name: str) -> str:
        return f"{self.folder.name}.{name}"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.arrays"


def folders_asking(home: Path) -> set[str]:
    """Return the ids of all steps that have requested parts."""
    return {path.parent.name for path in (home / "progress").glob(f"*/{ORDER}")}
