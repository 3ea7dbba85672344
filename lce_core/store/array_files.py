"""Named arrays as bytes of a safetensors file with a sha256; equal arrays give equal bytes."""

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
