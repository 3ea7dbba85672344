"""Compute fingerprints: sha256 digests of canonical JSON, which identify steps.

The encoder accepts only values with exactly one JSON form: str, bool, int, finite float, None,
lists and tuples, and mappings with string keys. It rejects all others, so that no NaN, set or
memory address can enter a fingerprint.
"""

import hashlib
import json
import math
from collections.abc import Mapping
from pathlib import Path

from lce_core.errors import SpecError
from lce_core.store.odd_files import open_file

ID_DIGITS = 12
"""48 bits: two of a million steps are unlikely to have the same id."""


def canonical_json(value: object, where: str = "value") -> str:
    """Return the canonical JSON: sorted keys, no whitespace, shortest float repr."""
    _check(value, where)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def fingerprint(value: object, where: str = "value") -> str:
    """Return the sha256 of the canonical JSON of `value` as 64 hex digits."""
    return hashlib.sha256(canonical_json(value, where).encode("ascii")).hexdigest()


def sha256_file(path: Path) -> str:
    with open_file(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(value: object, where: str) -> None:
    if isinstance(value, float):
        if not math.isfinite(value):
            raise SpecError(where, value, "a finite number", "give a finite number")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check(item, f"{where}[{index}]")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if not isinstance(key, str):
                raise SpecError(where, f"the key {key!r}", "keys that are strings", "quote the key")
            _check(item, f"{where} {key}" if where.endswith(":") else f"{where}.{key}")
    elif not (value is None or isinstance(value, bool | str | int)):
        raise SpecError(
            where,
            f"{type(value).__name__} {value!r}",
            "a value to fingerprint: str, bool, int, float, None, list or mapping with str keys",
            "convert it to one of these; in a YAML file, put dates in quotes",
        )
