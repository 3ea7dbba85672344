"""Divide a long cell (one benchmark evaluation) into parts that several workers compute.

    home/progress/<step id>/order.json        the list of the step's parts
    home/progress/<step id>/<part>.arrays     the result of a finished part
    home/leases/<step id>.<part>.json         the lease of the worker that computes a part

The worker that computes the step writes the list. Any worker may compute a part after it has
acquired the part's lease. When the step is finished, the store removes its parts.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from lce_core.store.lease import Lease, is_held
from lce_core.store.odd_files import make_folder, read_file, read_mapping, write_file
from lce_core.store.records import sync, write_json

ORDER = "order.json"
PART_LEASES = "*.*.json"
"""Excludes the leases of whole steps, <step id>.json."""


class Parts:
    """The parts of one step: their list (order.json), their results and their leases."""

    def __init__(self, folder: Path, leases: Path) -> None:
        self.folder, self._leases = folder, leases

    def open(self) -> None:
        make_folder(self.folder)

    def ask(self, order: Mapping[str, Any]) -> None:
        """Ask other workers to compute the parts, which `order` has by name under `parts`."""
        write_json(self.folder / ORDER, order)

    def order(self) -> dict[str, Any] | None:
        """Return the object last passed to `ask`; None if its file is missing or damaged."""
        with contextlib.suppress(OSError, ValueError):
            order = read_mapping(self.folder / ORDER)
            return order if isinstance(order.get("parts"), dict) else None
        return None

    def left(self) -> dict[str, bool]:
        """Return the unfinished parts; True if a live worker is computing the part."""
        order = self.order()
        names = order["parts"] if order else ()
        unfinished = (name for name in names if not self.has(name))
        return {name: is_held(self._leases, self._lease(name)) for name in unfinished}

    def free(self) -> list[str]:
        return [name for name, is_held in self.left().items() if not is_held]

    def has(self, name: str) -> bool:
        """Return True if the part's file exists, damaged or not."""
        return self._file(name).is_file()

    def read(self, name: str) -> dict[str, NDArray[Any]] | None:
        with contextlib.suppress(OSError):
            return from_bytes(read_file(self._file(name)))
        return None

    def write(self, name: str, arrays: Arrays) -> None:
        """Save a part; FileNotFoundError if the store removed the folder of the finished step."""
        write_file(self._file(name), to_bytes(arrays), durable=True)
        sync(self.folder)

    def lease(self, name: str) -> Lease | None:
        return Lease.acquire(self._leases, self._lease(name))

    def _lease(self, name: str) -> str:
        return f"{self.folder.name}.{name}"

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.arrays"


def folders_asking(home: Path) -> set[str]:
    return {path.parent.name for path in (home / "progress").glob(f"*/{ORDER}")}


Arrays = Mapping[str, NDArray[Any]]


def to_bytes(arrays: Arrays) -> bytes:
    return bytes(save({**arrays, "digest": _digest(arrays)}))


def from_bytes(content: bytes) -> dict[str, NDArray[Any]] | None:
    """Return the arrays in the output of `to_bytes`; None if the content is damaged."""
    try:
        arrays: dict[str, NDArray[Any]] = load(content)
        digest = arrays.pop("digest")
    except (SafetensorError, KeyError):
        return None
    return arrays if np.array_equal(digest, _digest(arrays)) else None


def _digest(arrays: Arrays) -> NDArray[np.uint8]:
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype} {array.shape}\n".encode())
        total.update(array.tobytes())
    return np.frombuffer(total.digest(), dtype=np.uint8)
