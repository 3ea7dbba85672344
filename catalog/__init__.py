"""The DuckDB catalog: the contents of the store as SQL views.

`build` writes the file from records and plans; `queries` reads it. Neither imports torch, Prefect
or MLflow. The file contains no data of its own: `lce rebuild catalog` recreates it from the store.
"""

from collections.abc import Callable, Iterable
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

Item = TypeVar("Item")


def catalog_path(home: Path) -> Path:
    return home / "catalog.duckdb"


def quoted(text: object) -> str:
    """Return the text as an SQL string literal, for statements that take no parameters."""
    return "'" + str(text).replace("'", "''") + "'"


def grouped(items: Iterable[Item], *by: str | int | Callable[[Item], Any]) -> dict[Any, list[Item]]:
    """Return the items by their value of a column, of several columns, or of a function.

    Groups are in the order of their first items.
    """
    key: Any = by[0] if callable(by[0]) else itemgetter(*by)
    found: dict[Any, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
