r"""Find and replace characters that files and servers cannot store: lone surrogates and NUL.

JSON, YAML, file names and tokenizers can produce strings with a lone surrogate (half of a pair,
such as \ud800), which UTF-8 cannot encode. Programs written in C treat NUL as the end of a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from lce_core.errors import SpecError

REPLACEMENT = "\ufffd"
_LONE = re.compile("[\ud800-\udfff]")
_REFUSED = re.compile("[\x00\ud800-\udfff]")
_IN_JSON = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]")
"""Matches bytes of JSON that may be a surrogate: an escape, or three bytes that are not UTF-8."""


def require_text(value: object, where: str) -> None:
    """Check that no string or key, also nested, has a lone surrogate or NUL.

    Raises:
      SpecError: with the character, its position in the string and the string's path.
    """
    for place, text, found in _found(_REFUSED, value, where):
        raise SpecError(
            place,
            f"U+{ord(text[found]):04X} as character {found + 1} of the text",
            "text without NUL and without halves of surrogate pairs (U+D800 to U+DFFF)",
            "remove or replace the character",
        )


def may_have_surrogates(written: bytes) -> bool:
    """Return False, fast, if the value that these bytes of JSON hold has no lone surrogate."""
    return _IN_JSON.search(written) is not None


def lone_surrogates(value: object) -> list[str]:
    """Return the paths, such as "cells[0].task", of strings and keys that have a lone surrogate."""
    return [place for place, _, _ in _found(_LONE, value, "")]


def writable(value: Any) -> Any:
    """Return a copy, also nested, in which U+FFFD replaces every lone surrogate."""
    if isinstance(value, str):
        return _LONE.sub(REPLACEMENT, value)
    if isinstance(value, Mapping):
        return {writable(key): writable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [writable(item) for item in value]
    return value


def _found(wanted: re.Pattern[str], value: object, where: str) -> Iterator[tuple[str, str, int]]:
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
