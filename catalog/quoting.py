"""Quote text in SQL statements that take no parameters, such as ATTACH, COPY and COMMENT."""

from __future__ import annotations


def quoted(text: object) -> str:
    """Return the text as an SQL string literal, with its quotes."""
    return "'" + str(text).replace("'", "''") + "'"
