"""Format rows as a table for people, or as CSV or JSON for programs.

Tables fit the given width: columns with a constant value are stated once above the table, long
names break at underscores, and columns that still do not fit continue in a second table that
repeats the key columns. CSV and JSON contain all values unrounded and all texts unchanged.
"""

import csv
import itertools
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lce_core import formats
from lce_core.errors import SpecError, did_you_mean
from lce_core.terminal import WIDTH, visible

FORMATS = ("table", "csv", "json")
"""Formats of `format_rows`; `write_parquet` writes a fourth one."""

_NULL = "-"
_LONGEST_CELL = 1000
_NARROWEST_TEXT = 24
_GAP = 2

Rows = Sequence[Sequence[Any]]


def format_rows(columns: Sequence[str], rows: Rows, form: str, width: int = WIDTH) -> str:
    """Return rows as `table`, `csv` or `json`, without a trailing newline."""
    if form == "table":
        return _table([visible(name) for name in _distinct(columns)], rows, width)
    if form == "csv":
        return _csv(columns, rows)
    if form == "json":
        return _json(_distinct(columns), rows)
    if form == "parquet":
        raise SpecError(
            "format", "parquet without a file", "a file to write", "add `--out FILE.parquet`"
        )
    raise SpecError("format", repr(form), "an output format", did_you_mean(form, FORMATS))


def write_parquet(columns: Sequence[str], rows: Rows, file: Path) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    names = _distinct(columns)
    values = zip(*rows, strict=True) if rows else [()] * len(names)
    parquet.write_table(pa.table(dict(zip(names, map(list, values), strict=True))), file)


def _csv(columns: Sequence[str], rows: Rows) -> str:
    lines: list[str] = []
    # csv.writer quotes a carriage return only if the line terminator contains one.
    end = "\r\n"
    writer = csv.writer(SimpleNamespace(write=lines.append), lineterminator=end)
    writer.writerow(columns)
    writer.writerows([["" if cell is None else _plain(cell) for cell in row] for row in rows])
    return "\n".join(line.removesuffix(end) for line in lines)


def _json(columns: Sequence[str], rows: Rows) -> str:
    objects = [dict(zip(columns, map(_json_value, row), strict=True)) for row in rows]
    return json.dumps(objects, indent=1, ensure_ascii=False, default=str, allow_nan=False)


def _json_value(cell: Any) -> Any:
    if isinstance(cell, float) and not math.isfinite(cell):
        return None
    return cell.isoformat() if isinstance(cell, datetime | date) else cell


def _plain(cell: Any) -> str:
    if isinstance(cell, bool):
        return "true" if cell else "false"
    if isinstance(cell, dict):
        return json.dumps(cell, ensure_ascii=False, default=str)
    return cell.isoformat() if isinstance(cell, datetime | date) else str(cell)


def _table(columns: list[str], rows: Rows, width: int) -> str:
    if not rows:
        return "\n".join([*_folded(", ".join(columns), width), "(no rows)"])
    grid = _Grid(
        columns,
        [[_short(cell) for cell in row] for row in rows],
        [is_numeric([row[i] for row in rows]) for i in range(len(columns))],
    )
    shown, above = list(range(len(columns))), ""
    if not grid.widths(shown, width) and len(rows) > 1:
        varying = [i for i in shown if len({row[i] for row in grid.cells}) > 1]
        above = grid.constants([i for i in shown if i not in varying], width)
        shown = varying
    blocks = grid.blocks(shown, width)
    if not blocks:
        return grid.one_below_the_other(width)
    return above + "\n\n".join(grid.block(block, width) for block in blocks)


@dataclass(frozen=True)
class _Grid:
    """The texts `cells[row][column]` of a table, its column names and its numeric columns."""

    columns: list[str]
    cells: list[list[str]]
    numeric: list[bool]

    def widths(self, shown: Sequence[int], width: int) -> dict[int, int]:
        """Return the width of each column in `shown` by index; empty if they do not fit in `width`.

        Only columns of text may be narrower than their longest cell, because they can wrap.
        """
        widths, least = {}, {}
        for i in shown:
            longest = max(len(row[i]) for row in self.cells)
            name = max(len(part) for part in _parts(self.columns[i]))
            widths[i] = max(longest, name)
            foldable = not self.numeric[i] and " " in "".join(row[i] for row in self.cells)
            least[i] = max(name, min(longest, _NARROWEST_TEXT)) if foldable else widths[i]
        room = width - _GAP * (len(shown) - 1)
        while (excess := sum(widths.values()) - room) > 0:
            widest = max(shown, key=lambda i: widths[i] - least[i])
            if widths[widest] == least[widest]:
                return {}
            widths[widest] -= min(excess, widths[widest] - least[widest])
        for i in shown:  # use spare room to keep column names unbroken
            more = len(self.columns[i]) - widths[i]
            if 0 < more <= room - sum(widths.values()):
                widths[i] += more
        return widths

    def blocks(self, shown: list[int], width: int) -> list[list[int]]:
        """Split the columns into tables that fit in `width`; empty if impossible.

        Each table starts with the key columns, which identify the row.
        """
        if self.widths(shown, width):
            return [shown]
        keys = self._keys(shown)
        blocks: list[list[int]] = []
        for column in shown[len(keys) :]:
            if blocks and self.widths([*blocks[-1], column], width):
                blocks[-1].append(column)
            elif self.widths([*keys, column], width):
                blocks.append([*keys, column])
            else:
                return []
        return blocks

    def block(self, shown: list[int], width: int) -> str:
        widths = self.widths(shown, width)
        heads = [_folded_name(self.columns[i], widths[i]) for i in shown]
        height = max(len(head) for head in heads)
        heads = [[""] * (height - len(head)) + head for head in heads]
        lines = self._lines(heads, widths)
        lines.append((" " * _GAP).join("-" * widths[i] for i in shown))
        for row in self.cells:
            lines += self._lines([_folded(row[i], widths[i]) for i in shown], widths)
        return "\n".join(line.rstrip() for line in lines)

    def constants(self, shown: list[int], width: int) -> str:
        """Format constant columns as "name=value", then list the columns that have no values."""
        empty = [self.columns[i] for i in shown if self.cells[0][i] == _NULL]
        known = [
            f"{self.columns[i]}={self.cells[0][i]}" for i in shown if self.cells[0][i] != _NULL
        ]
        lines = _folded("  ".join(known), width)
        if empty:
            lines += _folded(f"no value: {', '.join(empty)}", width)
        return "".join(f"{line}\n" for line in lines if line) + "\n" * any(lines)

    def one_below_the_other(self, width: int) -> str:
        """Format each row as a block of "name  value" lines, for tables too wide to be split."""
        name_width = max(len(name) for name in self.columns)
        indent = " " * (name_width + _GAP)
        blocks = []
        for row in self.cells:
            lines = []
            for name, cell in zip(self.columns, row, strict=True):
                parts = _folded(cell, max(width - len(indent), _NARROWEST_TEXT))
                lines.append(f"{name.ljust(len(indent))}{parts[0]}".rstrip())
                lines += [indent + part for part in parts[1:]]
            blocks.append("\n".join(lines))
        return ("\n" + "-" * width + "\n").join(blocks)

    def _keys(self, shown: list[int]) -> list[int]:
        """Return the first columns that together identify every row; empty if all are needed."""
        for number in range(1, len(shown)):
            keys = shown[:number]
            if len({tuple(row[i] for i in keys) for row in self.cells}) == len(self.cells):
                return keys
        return []

    def _lines(self, parts: list[list[str]], widths: dict[int, int]) -> list[str]:
        lines = []
        for texts in itertools.zip_longest(*parts, fillvalue=""):
            aligned = [
                text.rjust(width) if self.numeric[i] else text.ljust(width)
                for text, (i, width) in zip(texts, widths.items(), strict=True)
            ]
            lines.append((" " * _GAP).join(aligned))
        return lines


def _short(cell: Any) -> str:
    if cell is None:
        return _NULL
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return formats.score(cell)
    if isinstance(cell, datetime):
        return cell.isoformat(sep=" ", timespec="seconds")
    if isinstance(cell, dict):
        return ", ".join(f"{key}: {_short(value)}" for key, value in cell.items()) or _NULL
    text = visible(str(cell).replace("\r\n", "\n"))
    return text if len(text) <= _LONGEST_CELL else text[: _LONGEST_CELL - 3] + "..."


def is_numeric(values: Sequence[Any]) -> bool:
    """Return True if all known values are numbers, and there are any."""
    known = [value for value in values if value is not None]
    return bool(known) and all(
        isinstance(value, int | float) and not isinstance(value, bool) for value in known
    )


def _parts(name: str) -> list[str]:
    words = name.split("_")
    return [word + "_" for word in words[:-1]] + words[-1:]


def _folded_name(name: str, width: int) -> list[str]:
    lines = [""]
    for part in _parts(name):
        if lines[-1] and len(lines[-1] + part) > width:
            lines.append("")
        lines[-1] += part
    return lines


def _folded(text: str, width: int) -> list[str]:
    """Wrap text to lines of at most `width` characters, at spaces where possible."""
    lines = []
    for line in text.splitlines() or [""]:
        rest = line
        while len(rest) > width:
            cut = rest.rfind(" ", 1, width + 1)
            cut = cut if cut > 0 else width
            lines.append(rest[:cut].rstrip())
            rest = rest[cut:].lstrip(" ")
        lines.append(rest)
    return lines


def _distinct(columns: Sequence[str]) -> list[str]:
    """Return unique column names for JSON: a repeated name gets a number, such as `score_2`."""
    named: list[str] = []
    for column in columns:
        name, number = column, 1
        while name in named:
            number += 1
            name = f"{column}_{number}"
        named.append(name)
    return named
