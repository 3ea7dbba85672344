"""SQL views that mirror the papers' tables: one schema per paper, one view per table.

`catalog/reference/tables.csv` lists the tables with the axes of their rows and columns. The columns
follow from the printed figures in `scores.csv` and `hyperparameters.csv`. Views that are not pivots
of printed figures are written by hand in `sql/lceg.sql`.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from catalog import grouped, quoted

Row = dict[str, str]
"""A line of a CSV file: values by field name."""
_REFERENCE = Path(__file__).parent / "reference"

_FIELDS = {"task": "task", "length": "eval_length", "benchmark": "paper_benchmark", "unit": "unit"}
"""Columns of `scores.csv`. Each key is the name of the axis in `tables.csv` with these values."""
_NAMES = {
    "2wikimqa": "wikimqa",
    "repobench-p": "repobench_p",
    "violations of the bound": "violations",
}
_UNITS = {
    "perplexity": "perplexity",
    "percent": "per cent",
    "fraction": "fraction (0 to 1)",
    "tokens": "tokens",
    "count": "count",
    "gpu_hours": "GPU-hours",
}
"""Units as SQL comments name them; each key is a `unit` in `scores.csv`."""
_KEYS = (
    "base_model",
    "paper_method",
    "method",
    "frozen",
    "exact_attention",
    "train_length",
    "scale",
    "task",
)
"""Columns that can identify a row in a view of scores."""
_KEY_COMMENTS = {
    "base_model": "Registered name of the base model; NULL if it is not registered.",
    "method": "Label of the method in the shipped study that repeats the table; NULL for weights"
    " that others trained.",
    "train_length": "Sequence length, in tokens, with which the paper's weights were last trained;"
    " NULL if not printed.",
    "scale": "Scale factor of the method in the paper.",
}
"""SQL comments of key columns whose comment differs from the shared one in `sql/columns.yaml`."""
_BESIDE_OURS = "lceg.table_7"
"""View that also shows this project's settings. It is handwritten, in `sql/lceg.sql`."""
_SETTING_KEYS: dict[str, dict[str, str]] = {
    "method": {
        "paper_method": "Name of the method in the paper.",
        "method": _KEY_COMMENTS["method"],
    },
    "model": {"paper_method": "Name of the model in the paper."},
    "length": {"eval_length": "Context length in tokens to which the settings apply."},
}
"""Key columns, with SQL comments, of a view of settings. The outer key is the view's row axis."""
_ALWAYS = ("base_model", "paper_method", "method", "frozen")
"""Key columns that every view of scores has, even if all their values are NULL."""


def paper_table_views() -> str:
    views: dict[str, list[str]] = {}
    shown = {_BESIDE_OURS}
    for table, figures in _tables_of("scores"):
        shown.add(table["view"])
        views.setdefault(table["paper"], []).append(_score_view(table, figures))
    for table, settings in _tables_of("hyperparameters"):
        if table["view"] not in shown:
            views.setdefault(table["paper"], []).append(_setting_view(table, settings))
    return "\n".join(f"CREATE SCHEMA {paper};\n" + "\n".join(views[paper]) for paper in views)


def _rows_of(name: str) -> list[Row]:
    with (_REFERENCE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _tables_of(name: str) -> Iterator[tuple[Row, list[Row]]]:
    """Yield each row of `tables.csv` that has rows in the CSV file `name`, with these rows."""
    printed = grouped(_rows_of(name), "paper", "place")
    for table in _rows_of("tables"):
        if found := printed.get((table["paper"], table["place"])):
            yield table, found


def _name_of(axis: str, value: str) -> str:
    if axis == "length":
        return f"at_{int(value) // 1024}k" if value else "average"
    return re.sub(r"\W", "_", _NAMES.get(value, value).lower()).strip("_")


def _condition(axis: str, value: str) -> str:
    if not value:
        return f"{_FIELDS[axis]} IS NULL"
    return f"{_FIELDS[axis]} = {value}" if axis == "length" else f"{_FIELDS[axis]} = '{value}'"


def _columns_of(table: Row, figures: list[Row]) -> dict[str, tuple[str, list[Row]]]:
    """Return the columns of a table's view: by name, SQL condition and printed figures."""
    found: dict[str, tuple[str, list[Row]]] = {}
    for figure in figures:
        values = {axis: figure[_FIELDS[axis]] for axis in table["column_axis"].split(", ")}
        where = " AND ".join(_condition(*pair) for pair in values.items())
        # Such as `at_4k`, `pg19_4k` or `passkey_tokens`.
        name = "_".join(_name_of(*pair) for pair in values.items()).replace("_at_", "_")
        found.setdefault(name, (where, []))[1].append(figure)
    return found


def _keys_of(table: Row, figures: list[Row]) -> list[str]:
    filled = [axis for axis in table["row_axis"].split(", ") if axis != "method"]
    filled += [
        name
        for name in ("exact_attention", "train_length")
        if any(figure[name] for figure in figures)
    ]
    return [name for name in _KEYS if name in _ALWAYS or name in filled]


def _lengths_of(figure: Row) -> str:
    return figure["mean_lengths"] or figure["eval_length"]


def _lengths_differ(figures: list[Row], keys: list[str], columns: list[str]) -> bool:
    """Return True if columns of one row were measured at different context lengths.

    The view's column `lengths` then maps each column to its lengths. Return False if the column
    names contain the length.
    """
    if "length" in columns:
        return False
    seen: dict[tuple[str, ...], set[str]] = {}
    for figure in figures:
        if figure["value"] and _lengths_of(figure):
            seen.setdefault(tuple(figure[name] for name in keys), set()).add(_lengths_of(figure))
    return any(len(found) > 1 for found in seen.values())


def _comment_on(figure: Row, columns: list[str]) -> str:
    what = [figure["paper_benchmark"] if "benchmark" in columns else figure["task"]]
    if "task" not in columns and "benchmark" not in columns:
        what = [figure["paper_benchmark"]]
    if "length" in columns:
        length = figure["eval_length"]
        what.append(f"at {int(length):,} tokens" if length else "over all lengths")
    text = " ".join(what)
    return f"{text[0].upper()}{text[1:]}; {_UNITS[figure['unit']]}."


def _score_view(table: Row, figures: list[Row]) -> str:
    columns, keys = _columns_of(table, figures), _keys_of(table, figures)
    by = table["column_axis"].split(", ")
    mapped = _lengths_differ(figures, keys, by)
    selected = ["study", *keys, "source"]
    selected += [
        f"any_value(value) FILTER ({where}) AS {column}" for column, (where, _) in columns.items()
    ]
    if mapped:
        pairs = ",\n".join(
            f"        '{column}': any_value(lengths) FILTER ({where})"
            for column, (where, _) in columns.items()
        )
        selected.append(f"MAP {{\n{pairs}\n    }} AS lengths")
        lengths = "Context lengths in tokens behind each value, by column name."
    else:
        each = "flatten(list(lengths) FILTER (lengths IS NOT NULL))"
        selected.append(f"list_sort(list_distinct({each})) AS lengths")
        lengths = "Context lengths in tokens behind the values of the row."
    comments = {
        "study": "Name of our study; NULL if no study repeats a figure of the table.",
        **{column: _KEY_COMMENTS[column] for column in keys if column in _KEY_COMMENTS},
        "source": "paper for printed values, ours for the study's values. A value is NULL if none"
        " is printed or if a cell behind it is not done.",
        **{column: _comment_on(found[-1], by) for column, (_, found) in columns.items()},
        "lengths": lengths,
    }
    return _view(table, "papers.beside", "study, min(id), source DESC", selected, comments)


def _setting_view(table: Row, settings: list[Row]) -> str:
    by = table["column_axis"]
    field = _FIELDS.get(by, by)
    keys = _SETTING_KEYS[table["row_axis"]]
    selected, comments = list(keys), dict(keys)
    for value, found in grouped(settings, field).items():
        column = _name_of(by, value).removeprefix("rope_base_")
        kind = "value" if any(row["value"] for row in found) else "text"
        where = _condition(by, value) if by in _FIELDS else f"setting = '{value}'"
        selected.append(f"any_value({kind}) FILTER ({where}) AS {column}")
        unit = f", in {found[0]['unit']}" if found[0]["unit"] else ""
        text = f"{int(value):,} tokens" if by == "length" else value.replace("_", " ")
        comments[column] = f"{text[0].upper()}{text[1:]}{unit}, as printed."
    return _view(table, "papers.hyperparameter", "min(id)", selected, comments)


def _view(
    table: Row, source: str, order: str, selected: Sequence[str], comments: Mapping[str, str]
) -> str:
    name, body = table["view"], ",\n".join(f"    {line}" for line in selected)
    title = f"{table['place']}. {table['title']}. Lengths: {table['lengths']}."
    commented = "".join(
        f"COMMENT ON COLUMN {name}.{column} IS {quoted(text)};\n"
        for column, text in comments.items()
    )
    return (
        f"CREATE VIEW {name} AS\nSELECT\n{body}\nFROM {source}\n"
        f"WHERE paper = '{table['paper']}' AND place = '{table['place']}'\n"
        f"GROUP BY ALL\nORDER BY {order};\n"
        f"COMMENT ON VIEW {name} IS {quoted(title)};\n{commented}"
    )
