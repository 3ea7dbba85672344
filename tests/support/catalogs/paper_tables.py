"""Writes `catalog/sql/paper_tables/*.sql`: one view a table of the papers, in its own shape.

`python -m tests.support.catalogs.paper_tables` writes them anew. Which tables there are, and what
their columns are, stands in `catalog/reference/tables.csv`; which values a column has, in
`scores.csv`.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import catalog.build

Row = dict[str, str]
REFERENCE = Path(catalog.build.__file__).parent / "reference"
SQL = REFERENCE.parent / "sql" / "paper_tables"

FIELDS = {"task": "task", "length": "eval_length", "benchmark": "paper_benchmark", "unit": "unit"}
"""Column of `scores.csv` by axis of `tables.csv`."""
NAMES = {
    "2wikimqa": "wikimqa",
    "repobench-p": "repobench_p",
    "violations of the bound": "violations",
}
UNITS = {
    "perplexity": "perplexity",
    "percent": "percent",
    "fraction": "0 to 1",
    "tokens": "tokens",
    "count": "a count",
    "gpu_hours": "hours of a GPU",
}
WHO = {
    "base_model": "Registered name of the base model; NULL if none is registered.",
    "paper_method": "Method or model as the paper names it.",
    "method": "Label of the method; NULL for weights that others trained.",
    "frozen": "Whether the method was applied without fine-tuning.",
    "exact_attention": "Whether every token can attend to every earlier one.",
    "train_length": "Tokens of the rows that the paper's weights were last trained on.",
    "scale": "Scale of the method in the paper.",
    "task": "Task of the benchmark.",
}
BESIDE_OURS = "lceg.table_7"
"""Written by hand: `catalog/sql/paper_tables/training.sql`."""
WHOSE = {
    "method": {"paper_method": "Method as the paper names it.", "method": "Label of the method."},
    "model": {"paper_method": "Model as the paper names it."},
    "length": {"eval_length": "Context in tokens."},
}
ALWAYS = ("base_model", "paper_method", "method", "frozen")


def rows_of(name: str) -> list[Row]:
    with (REFERENCE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def scored_tables() -> Iterator[tuple[Row, list[Row]]]:
    """Tables of scores with their figures, in the order of `tables.csv`."""
    scores = rows_of("scores")
    for table in rows_of("tables"):
        figures = [
            row
            for row in scores
            if (row["paper"], row["place"]) == (table["paper"], table["place"])
        ]
        if figures:
            yield table, figures


def setting_tables() -> Iterator[tuple[Row, list[Row]]]:
    """Tables of settings, likewise; but for those that stand beside ours, which is not a pivot."""
    settings = rows_of("hyperparameters")
    scored = {table["view"] for table, _ in scored_tables()}
    for table in rows_of("tables"):
        figures = [
            row
            for row in settings
            if (row["paper"], row["place"]) == (table["paper"], table["place"])
        ]
        if figures and table["view"] not in scored | {BESIDE_OURS}:
            yield table, figures


def in_thousands(length: str) -> str:
    return f"{int(length) // 1024}k"


def name_of(axis: str, value: str) -> str:
    if axis == "length":
        return f"at_{in_thousands(value)}" if value else "average"
    return re.sub(r"\W", "_", NAMES.get(value, value).lower()).strip("_")


def column_name(values: dict[str, str]) -> str:
    """`at_4k`, `pg19_4k`, `passkey_tokens`, ..."""
    return "_".join(name_of(*pair) for pair in values.items()).replace("_at_", "_")


def condition(axis: str, value: str) -> str:
    if not value:
        return f"{FIELDS[axis]} IS NULL"
    return f"{FIELDS[axis]} = {value}" if axis == "length" else f"{FIELDS[axis]} = '{value}'"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def axes(told: str) -> list[str]:
    return told.split(", ")


def columns_of(table: Row, figures: list[Row]) -> dict[str, tuple[str, list[Row]]]:
    """By name of a column: the condition for its figures, and these."""
    found: dict[str, tuple[str, list[Row]]] = {}
    for figure in figures:
        values = {axis: figure[FIELDS[axis]] for axis in axes(table["column_axis"])}
        where = " AND ".join(condition(*pair) for pair in values.items())
        found.setdefault(column_name(values), (where, []))[1].append(figure)
    return found


def who_of(table: Row, figures: list[Row]) -> list[str]:
    """What a row is told by: without columns that are empty in all of the table."""
    told = [axis for axis in axes(table["row_axis"]) if axis != "method"]
    told += [
        name
        for name in ("exact_attention", "train_length")
        if any(figure[name] for figure in figures)
    ]
    kept = [name for name in WHO if name in ALWAYS or name in told]
    keys = [tuple(figure[name] for name in kept) for figure in figures]
    values = [tuple(figure[FIELDS[a]] for a in axes(table["column_axis"])) for figure in figures]
    assert len({*zip(keys, values, strict=True)}) == len(figures), table
    return kept


def lengths_of(figure: Row) -> str:
    return figure["mean_lengths"] or figure["eval_length"]


def lengths_differ(figures: list[Row], who: list[str], columns: list[str]) -> bool:
    """Whether one row has columns over different lengths that their names do not tell."""
    if "length" in columns:
        return False
    seen: dict[tuple[str, ...], set[str]] = {}
    for figure in figures:
        if figure["value"] and lengths_of(figure):
            seen.setdefault(tuple(figure[name] for name in who), set()).add(lengths_of(figure))
    return any(len(found) > 1 for found in seen.values())


def told_figure(figure: Row, columns: list[str]) -> str:
    what = [figure["paper_benchmark"] if "benchmark" in columns else figure["task"]]
    if "task" not in columns and "benchmark" not in columns:
        what = [figure["paper_benchmark"]]
    if "length" in columns:
        length = figure["eval_length"]
        what.append(f"at {int(length):,} tokens" if length else "over all lengths")
    told = " ".join(what)
    return f"{told[0].upper()}{told[1:]}; {UNITS[figure['unit']]}."


def view_of(table: Row, figures: list[Row]) -> str:
    columns, who = columns_of(table, figures), who_of(table, figures)
    by = axes(table["column_axis"])
    name, mapped = table["view"], lengths_differ(figures, who, by)
    selected = ["study", *who, "source"]
    selected += [
        f"any_value(value) FILTER ({where}) AS {column}" for column, (where, _) in columns.items()
    ]
    if mapped:
        pairs = ",\n".join(
            f"        '{column}': any_value(lengths) FILTER ({where})"
            for column, (where, _) in columns.items()
        )
        selected.append(f"MAP {{\n{pairs}\n    }} AS lengths")
        lengths = "Lengths that each column stands on, by its name."
    else:
        each = "flatten(list(lengths) FILTER (lengths IS NOT NULL))"
        selected.append(f"list_sort(list_distinct({each})) AS lengths")
        lengths = "Lengths that the row stands on."
    body = ",\n".join(f"    {line}" for line in selected)
    comments = {
        "study": "Name of our study; NULL if none has a figure of the table.",
        **{column: WHO[column] for column in who},
        "source": "paper: as printed. ours: what the study found; NULL where it is not complete.",
        **{column: told_figure(found[-1], by) for column, (_, found) in columns.items()},
        "lengths": lengths,
    }
    title = f"{table['place']}. {table['title']}. Lengths: {table['lengths']}."
    told = "\n".join(
        f"COMMENT ON COLUMN {name}.{column} IS {quoted(text)};" for column, text in comments.items()
    )
    return (
        f"CREATE VIEW {name} AS\nSELECT\n{body}\nFROM papers.beside\n"
        f"WHERE paper = '{table['paper']}' AND place = '{table['place']}'\n"
        "GROUP BY ALL\nORDER BY study, min(id), source DESC;\n\n"
        f"COMMENT ON VIEW {name} IS\n    {quoted(title)};\n{told}\n"
    )


def setting_view(table: Row, settings: list[Row]) -> str:
    name, by = table["view"], table["column_axis"]
    field = FIELDS.get(by, by)
    who = WHOSE[table["row_axis"]]
    columns: dict[str, list[Row]] = {}
    for row in settings:
        columns.setdefault(row[field], []).append(row)
    selected, comments = list(who), dict(who)
    for value, found in columns.items():
        column = name_of(by, value).removeprefix("rope_base_")
        kind = "value" if any(row["value"] for row in found) else "text"
        where = condition(by, value) if by in FIELDS else f"setting = '{value}'"
        selected.append(f"any_value({kind}) FILTER ({where}) AS {column}")
        unit = f"; {found[0]['unit']}" if found[0]["unit"] else ""
        told = f"{int(value):,} tokens" if by == "length" else value.replace("_", " ")
        comments[column] = f"{told[0].upper()}{told[1:]}, as printed{unit}."
    body = ",\n".join(f"    {line}" for line in selected)
    title = f"{table['place']}. {table['title']}. Lengths: {table['lengths']}."
    told = "\n".join(
        f"COMMENT ON COLUMN {name}.{column} IS {quoted(text)};" for column, text in comments.items()
    )
    return (
        f"CREATE VIEW {name} AS\nSELECT\n{body}\nFROM papers.hyperparameter\n"
        f"WHERE paper = '{table['paper']}' AND place = '{table['place']}'\n"
        f"GROUP BY ALL\nORDER BY min(id);\n\nCOMMENT ON VIEW {name} IS\n"
        f"    {quoted(title)};\n{told}\n"
    )


def written() -> dict[str, str]:
    """Text of each file, by paper."""
    texts: dict[str, list[str]] = {}
    for table, figures in scored_tables():
        texts.setdefault(table["paper"], []).append(view_of(table, figures))
    for table, settings in setting_tables():
        texts.setdefault(table["paper"], []).append(setting_view(table, settings))
    return {
        paper: "-- Written by `python -m tests.support.catalogs.paper_tables`,"
        " from catalog/reference.\n\n"
        f"CREATE SCHEMA {paper};\n\n" + "\n".join(views)
        for paper, views in texts.items()
    }


if __name__ == "__main__":
    for paper, text in written().items():
        (SQL / f"{paper}.sql").write_text(text, encoding="utf-8")
