"""The DuckDB catalog: the contents of the store as SQL views.

`build` writes the file from records and plans; `queries` reads it. Neither imports torch, Prefect
or MLflow. The file contains no data of its own: `lce rebuild catalog` recreates it from the store.
"""

from pathlib import Path


def catalog_path(home: Path) -> Path:
    return home / "catalog.duckdb"


def quoted(text: object) -> str:
    """Return the text as an SQL string literal, for statements that take no parameters."""
    return "'" + str(text).replace("'", "''") + "'"
