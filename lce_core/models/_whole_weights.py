"""Finds damaged weights when a study is planned, not hours later when they are loaded."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

from lce_core.errors import DataError

_INDEX = "model.safetensors.index.json"
_LENGTH_BYTES = 8
"""A safetensors file begins with the length of its header, a little-endian integer."""
_MAX_HEADER_BYTES = 100_000_000
"""Limit of the format; a longer header means that the file is no safetensors."""


def require_whole(folder: Path) -> None:
    """Check that a model's safetensors files have the sizes that their headers state.

    Only headers are read. Values are covered by the digest of the files.

    Raises:
      DataError: a file is cut off, is no safetensors file, or the index names one that is missing.
    """
    for file in _weights(folder):
        try:
            wrong = _damage(file)
        except OSError as error:
            wrong = error.strerror or str(error)
        if wrong:
            raise DataError(
                file,
                wrong,
                "a whole safetensors file",
                "copy or download it again",
            )


def _weights(folder: Path) -> Iterator[Path]:
    """Yield the files that lie there, then those that the index names."""
    yield from sorted(folder.glob("*.safetensors"))
    index = folder / _INDEX
    if not index.is_file():
        return
    try:
        shards = json.loads(index.read_bytes())["weight_map"].values()
        yield from (folder / shard for shard in sorted(set(shards)))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            index,
            f"no readable index ({type(error).__name__}: {error})",
            "a JSON mapping with weight_map: the file of each tensor",
            "copy or download it again",
        ) from error


def _damage(file: Path) -> str:
    """Return what is wrong with a safetensors file; empty if nothing is."""
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or not 0 < length <= min(size - _LENGTH_BYTES, _MAX_HEADER_BYTES):
            return f"no safetensors header in its {size:,} bytes"
        header = stream.read(length)
    try:
        tensors = json.loads(header)
        ends = [one["data_offsets"][1] for name, one in tensors.items() if name != "__metadata__"]
        expected = _LENGTH_BYTES + length + max(ends, default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        return "a header that is not of the safetensors format"
    if size != expected:
        return f"{size:,} bytes, where its header states {expected:,}"
    return ""
