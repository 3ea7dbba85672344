"""Fingerprints: canonical JSON and its sha256.

The encoder accepts only what has one spelling (str, bool, int, finite float, None, lists,
string-keyed mappings) and raises on anything else, so that an object with an address in its
repr, a set or a NaN can never slip into an id.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

from lce_core.errors import SpecError
from lce_core.store.odd_files import open_file

SHORT = 12
"""Hex digits of a fingerprint that appear in names; 48 bits, ample for millions of cells."""


def canonical_json(value: object, where: str = "value") -> str:
    """The one JSON spelling of `value`: sorted keys, no blanks, shortest float repr.

    Raises:
      SpecError: `value` holds something without a canonical spelling; names the place.
    """
    _check(value, where)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(value: object, where: str = "value") -> str:
    """sha256 of the canonical JSON, 64 hex digits."""
    return hashlib.sha256(canonical_json(value, where).encode("ascii")).hexdigest()


def sha256_file(path: Path) -> str:
    """sha256 of a file's bytes, 64 hex digits, read in 1 MiB blocks."""
    digest = hashlib.sha256()
    with open_file(path) as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _check(value: object, where: str) -> None:
    if value is None or isinstance(value, bool | str | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(where, value, "a finite number", "give a finite number")
        return
    if isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]")
        return
    if isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SpecError(where, f"the key {key!r}", "keys that are strings", "quote the key")
            _check(item, f"{where} {key}" if where.endswith(":") else f"{where}.{key}")
        return
    raise SpecError(
        where,
        f"{type(value).__name__} {value!r}",
        "str, bool, int, float, None, lists or str-keyed mappings, which fingerprints are made of",
        "convert it to one of these first",
    )
