"""Parts of a step that takes hours: each is committed by itself, by whoever takes it first.

    home/progress/<fingerprint12>/order.json        parts that are asked for
    home/progress/<fingerprint12>/<name>.arrays     a part that is done
    home/leases/<fingerprint12>.<name>.json         who computes a part

Whoever computes the step asks for its parts, and anybody may compute one. A part is renamed into
place and carries a digest. All of them go when the step is committed, as its other progress does;
those of a step that nobody finishes go by `lce_core.store.garbage`.
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
"""Leases of parts, among those of steps."""


class Parts:
    """Parts of one step.

    Args:
      folder: of the step's progress.
      leases: folder of the store's leases.
    """

    def __init__(self, folder: Path, leases: Path) -> None:
        self.folder, self._leases = folder, leases

    def open(self) -> None:
        """Makes room for parts."""
        make_folder(self.folder)

    def ask(self, order: Mapping[str, Any]) -> None:
        """Asks for parts, in the place of those that were asked for before.

        Args:
          order: JSON; the keys of its `parts` are their names.
        """
        write_json(self.folder / ORDER, order)

    def order(self) -> dict[str, Any] | None:
        """What is asked for; None while nothing is."""
        with contextlib.suppress(OSError, ValueError):
            order = read_mapping(self.folder / ORDER)
            return order if isinstance(order.get("parts"), dict) else None
        return None

    def left(self) -> dict[str, bool]:
        """Parts that are asked for and not there; whether somebody computes each."""
        order = self.order()
        names = order["parts"] if order else ()
        return {name: self._is_held(name) for name in names if not self.has(name)}

    def free(self) -> list[str]:
        """Parts that are asked for, and that nobody has computed or computes."""
        return [name for name, is_held in self.left().items() if not is_held]

    def has(self, name: str) -> bool:
        """Whether a part lies there, whole or not."""
        return self._file(name).is_file()

    def read(self, name: str) -> dict[str, NDArray[Any]] | None:
        """A part; None without a whole one."""
        with contextlib.suppress(OSError):
            return from_bytes(read_file(self._file(name)))
        return None

    def write(self, name: str, arrays: Arrays) -> None:
        """Commits a part.

        Raises:
          FileNotFoundError: nobody asks for parts of this step any more.
          OSError: the disk is full; nothing is left behind.
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
        """The right to compute a part; None while another live process has it."""
        return Lease.acquire(self._leases, self._lease(name))

    def _is_held(self, name: str) -> bool:
        return is_held(self._leases, self._lease(name))

    def _lease(self, name: str) -> str:
        return f"{self.folder.name}.{name}"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.arrays"


def folders_asking(home: Path) -> set[str]:
    """First digits of the fingerprints of steps whose parts are asked for."""
    return {path.parent.name for path in (home / "progress").glob(f"*/{ORDER}")}
