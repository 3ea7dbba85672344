"""Tables of docs/gpus.md that scripts compute: print one, or replace it on the page (`--write`)."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

PAGE = Path(__file__).resolve().parent.parent / "docs" / "gpus.md"


def written(name: str) -> str:
    """Return the table of this name on the page."""
    return _parts(name)[1].strip()


def main(tables: dict[str, Callable[[], str]], description: str | None) -> None:
    """Print all tables; with `--write` on the command line, replace them on the page."""
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--write", action="store_true", help="replace the tables in docs/gpus.md")
    write = parser.parse_args().write
    for name, make in tables.items():
        found = make()
        print(found)
        if write:
            before, _, after = _parts(name)
            PAGE.write_text(f"{before}\n{found}\n{after}", encoding="utf-8")


def _parts(name: str) -> tuple[str, str, str]:
    """Return the page up to the table's start, the table, and the page from its end."""
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    before, rest = PAGE.read_text(encoding="utf-8").split(start)
    table, after = rest.split(end)
    return before + start, table, end + after
