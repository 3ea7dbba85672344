"""Text that every file and server takes: Unicode without lone surrogates, and without NUL.

JSON, YAML, file names and tokenizers written in Python can put half of a surrogate pair into a
string. UTF-8 has no bytes for it, and so neither have Parquet, DuckDB, MLflow and Prefect. NUL can
be stored, but it ends the text for programs written in C.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lce_core.errors import SpecError

REPLACEMENT = "\ufffd"
"""Unicode's own character in place of one that cannot be written."""
_LONE = re.compile("[\ud800-\udfff]")
_REFUSED = re.compile("[\x00\ud800-\udfff]")


def require_text(value: object, where: str) -> None:
    """Refuse lone surrogates and NUL in the strings of nested lists and mappings.

    Raises:
      SpecError: names the key, the character and its position in the text.
    """
    for place, text, found in _found(_REFUSED, value, where):
        raise SpecError(
            place,
            f"U+{ord(text[found]):04X} as character {found + 1} of the text",
            "text without NUL and without halves of surrogate pairs (U+D800 to U+DFFF)",
            "remove the character, or write the one that it stands for",
        )


def lone_surrogates(value: object, where: str = "") -> list[str]:
    """Return the places of strings that cannot be written as UTF-8."""
    return [place for place, _, _ in _found(_LONE, value, where)]


def writable(value: Any) -> Any:
    """Return `value` with U+FFFD in place of every lone surrogate."""
    if isinstance(value, str):
        return _LONE.sub(REPLACEMENT, value)
    if isinstance(value, Mapping):
        return {writable(key): writable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [writable(item) for item in value]
    return value


def _found(wanted: re.Pattern[str], value: object, where: str) -> Iterator[tuple[str, str, int]]:
    """Yield the place, the text and the index of the first such character of each string."""
    if isinstance(value, str):
        if match := wanted.search(value):
            yield writable(where), value, match.start()
    elif isinstance(value, Mapping):
        for key, item in value.items():
            inner = f"{where} {key}" if where.endswith(":") else f"{where}.{key}".lstrip(".")
            yield from _found(wanted, key, inner)
            yield from _found(wanted, item, inner)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _found(wanted, item, f"{where}[{index}]")
