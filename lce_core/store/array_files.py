"""Arrays in one file that may be lost or damaged at any time: read whole or not at all.

A safetensors file with the arrays and `digest`, their sha256. Equal arrays give equal bytes, so it
does not matter which of two writers comes last.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

Arrays = Mapping[str, NDArray[Any]]


def to_bytes(arrays: Arrays) -> bytes:
    """The file's content."""
    return bytes(save({**arrays, "digest": _digest(arrays)}))


def from_bytes(content: bytes) -> dict[str, NDArray[Any]] | None:
    """The arrays of `to_bytes`; None of content that is not whole."""
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
