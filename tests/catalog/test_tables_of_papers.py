"""The papers' tables as views: their side is what is printed, ours is a pivot of the cells.

Strategy: names of columns are read back into task, length and benchmark, to look for each figure of
`scores.csv`; cells are made up for every figure, with holes, and averaged by plain Python.
"""

import json
import re
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalog.build import write_tables
from catalog.paper_tables import paper_table_views
from tests.catalog.test_catalog import ask, documented_queries
from tests.catalog.test_paper_comparison import Ours, written
from tests.catalog.test_reference import SCORES, SETTINGS, Row, rows_of

PAPERS = ("lceg", "yarn", "harpe", "rope_base")
TABLES = rows_of("tables")
PLACES = {table["view"]: table for table in TABLES if table["view"]}
SCORED = [
    view
    for view, table in PLACES.items()
    if any((row["paper"], row["place"]) == (table["paper"], table["place"]) for row in SCORES)
]


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("empty") / "catalog.duckdb"
    write_tables({}, path)
    return path


def test_every_table_has_its_view_or_the_reason_why_not(empty):
    found = ask(
        empty,
        "SELECT schema_name || '.' || view_name AS name FROM duckdb_views()"
        f" WHERE schema_name IN {PAPERS}",
    )
    assert {row["name"] for row in found} == PLACES.keys()
    assert all(bool(table["view"]) != bool(table["reason"]) for table in TABLES)
    assert ask(empty, "SELECT count(*) AS n FROM paper_tables") == [{"n": len(TABLES)}]
    # Whatever table has a figure, a setting or a name in the papers' texts is listed.
    told = {(row["paper"], row["place"]) for row in (*SCORES, *SETTINGS)}
    listed = {(table["paper"], table["place"]) for table in TABLES}
    assert {place for place in told if place[1].startswith("Table")} <= listed


def test_the_documented_query_of_a_table_finds_each_printed_row_once(empty):
    (sql,) = (query for query in documented_queries() if "lceg.table_1" in query)
    printed = ask(empty, "SELECT paper_method FROM lceg.table_1")
    assert [row["paper_method"] for row in ask(empty, sql)] == [
        row["paper_method"] for row in printed
    ]
    assert len(printed) == 10


# The papers' side


def figures_of(view: str) -> list[Row]:
    table = PLACES[view]
    return [
        row for row in SCORES if (row["paper"], row["place"]) == (table["paper"], table["place"])
    ]


def plain(name: str) -> str:
    shorter = name.lower().replace("2wiki", "wiki").replace("violations of the bound", "violations")
    return re.sub(r"\W", "_", shorter).strip("_")


def belongs(figure: Row, column: str) -> bool:
    """Whether a column, by its name alone, is the figure's."""
    told = re.fullmatch(r"(.*?)_?(\d+)k", column)
    if told:
        column, length = told[1], int(told[2]) * 1024
        if figure["eval_length"] != str(length):
            return False
        if column == "at":
            return True
    if column == "average" and not many(figure) and figure["task"] not in ("", "average"):
        return not figure["eval_length"]  # over lengths, of one task
    names = (figure["task"], figure["paper_benchmark"])
    return column in {plain(name) for name in names if name} | {
        plain(f"{figure['paper_benchmark']} {figure['unit']}")
    } and (told is not None or column != "average" or not figure["eval_length"] or many(figure))


def many(figure: Row) -> bool:
    """Whether the average is one of tasks, in a table of tasks."""
    return figure["place"] in TASK_TABLES[figure["paper"]]


TASK_TABLES = {
    "lceg": {"Table 4", *(f"Table {n}" for n in range(11, 17))},
    "yarn": set(), "harpe": {"Table 5"}, "rope_base": set(),
}  # fmt: skip

OWN = {"lceg.table_9": ("scale",), "harpe.table_8": ("task",)}
"""What tells rows of one method apart."""


def key(row: Any, view: str) -> tuple[str, ...]:
    def text(name: str) -> str:
        value = row[name]
        return (
            "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        )

    names = ["base_model", "paper_method", "method", "frozen"]
    numbers = [float(row[name]) if name == "scale" else row[name] for name in OWN.get(view, ())]
    return (*(text(name) for name in names), *map(str, numbers))


def values_of(view: str) -> list[str]:
    created = rf"CREATE VIEW {re.escape(view)} AS(.*?)\nFROM"
    (body,) = re.findall(created, paper_table_views(), flags=re.DOTALL)
    return re.findall(r"\) AS (\w+)", body.split("MAP {")[0].split("list_sort")[0])


@pytest.mark.parametrize("view", SCORED)
def test_the_papers_side_is_every_printed_figure_and_nothing_else(view, empty):
    rows = ask(empty, f"FROM {view}")
    columns, figures = values_of(view), figures_of(view)
    assert {row["source"] for row in rows} == {"paper"}
    assert {row["study"] for row in rows} == {None}
    assert [key(row, view) for row in rows] == [*dict.fromkeys(key(f, view) for f in figures)]
    expected: dict[tuple[tuple[str, ...], str], float] = {}
    for figure in figures:
        (column,) = (name for name in columns if belongs(figure, name))
        if figure["value"]:
            assert (key(figure, view), column) not in expected
            expected[key(figure, view), column] = float(figure["value"])
    shown = {
        (key(row, view), column): row[column]
        for row in rows
        for column in columns
        if row[column] is not None
    }
    assert shown == expected
    # In the order of print.
    firsts = [next(i for i, f in enumerate(figures) if belongs(f, name)) for name in columns]
    assert firsts == sorted(firsts)
    assert list(rows[0]).index("source") + 1 == list(rows[0]).index(columns[0])
    assert list(rows[0])[-1] == "lengths"


def test_settings_are_those_of_the_papers(empty):
    views = [view for view in PLACES if view not in SCORED and "table" in view]
    for view in views:
        table = PLACES[view]
        settings = [
            row
            for row in SETTINGS
            if (row["paper"], row["place"]) == (table["paper"], table["place"])
        ]
        shown = sorted(
            float(value)
            for row in ask(empty, f"FROM {view}")
            for name, value in row.items()
            if isinstance(value, float | int) and name not in ("eval_length", "frozen")
        )
        assert shown == sorted(float(row["value"]) for row in settings if row["value"])


def test_a_row_tells_at_which_lengths_it_is_evaluated(empty):
    def told(view: str, method: str) -> Any:
        rows = ask(empty, f"SELECT lengths FROM {view} WHERE method = '{method}' LIMIT 1")
        return rows[0]["lengths"]

    assert told("lceg.table_4", "none") == [4096]
    assert told("lceg.table_4", "yarn") == [32768]
    assert told("lceg.table_3", "none") == [4096]
    assert told("lceg.table_3", "yarn") == [4096, 8192, 16384, 32768, 65536]
    of_table_1 = told("lceg.table_1", "yarn")
    assert of_table_1["ppl"] == of_table_1["ruler"] == [32768]
    assert (len(of_table_1["needle"]), of_table_1["mshots"]) == (20, None)
    assert len(told("harpe.table_3", "harpe")["proof_pile"]) == 64


# Our side

Cell = tuple[str, str, bool, str, str, str, int, int | None, int | None, str]


def parts_of(figure: Row) -> list[Cell]:
    """Cells that a figure of ours stands on."""
    if not (figure["method"] and figure["benchmark"] and figure["base_model"]):
        return []
    tasks = (figure["mean_tasks"] or figure["task"]).split()
    lengths = (figure["mean_lengths"] or figure["eval_length"]).split()
    return [
        (
            figure["base_model"], figure["method"], figure["frozen"] == "true",
            figure["benchmark"], figure["profile"], task, int(length),
            int(figure["train_length"] or 0) or None, int(figure["target_context"] or 0) or None,
            figure["metric"] or "default",
        )
        for task in tasks
        for length in lengths
    ]  # fmt: skip


@pytest.mark.parametrize("paper", PAPERS)
def test_our_side_is_a_pivot_of_the_cells(paper, tmp_path):
    rng = np.random.default_rng(7)
    figures = [row for row in SCORES if row["paper"] == paper]
    planned = dict.fromkeys(cell for figure in figures for cell in parts_of(figure))
    all_of_one = next(row["method"] for row in figures if row["method"] not in ("", "none"))
    scores: dict[Cell, list[float | None]] = {
        cell: [
            None if cell[1] == all_of_one or rng.random() < 0.01 else float(rng.random())
            for _ in range(2)
        ]
        for cell in planned
    }
    higher = {
        cell: figure["unit"] != "perplexity" for figure in figures for cell in parts_of(figure)
    }
    cells = [
        Ours(
            method, frozen, benchmark, task, length, value, train_length, target or 1, profile,
            base_model, seed, metric, higher[cell], study=paper,
        )
        for cell, values in scores.items()
        for base_model, method, frozen, benchmark, profile, task, length, train_length, target,
        metric in [cell]
        for seed, value in enumerate(values)
    ]  # fmt: skip
    built = written(tmp_path / "catalog.duckdb", cells)
    seen = 0
    for view in (view for view in SCORED if view.startswith(f"{paper}.")):
        rows = ask(built, f"FROM {view} WHERE study = '{paper}'")
        sources = [row["source"] for row in rows]
        if not any(parts_of(figure) for figure in figures_of(view)):
            assert not rows
            continue
        columns = values_of(view)
        ours = {key(row, view): row for row in rows if row["source"] == "ours"}
        labelled = [f for f in figures_of(view) if f["method"]]
        assert list(ours) == [*dict.fromkeys(key(figure, view) for figure in labelled)]
        assert sources.count("paper") == len({key(figure, view) for figure in figures_of(view)})
        for figure in labelled:
            (column,) = (name for name in columns if belongs(figure, name))
            found = [value for cell in parts_of(figure) for value in scores[cell]]
            here = ours[key(figure, view)][column]
            if found and None not in found:
                mean = fmean(found) * (100 if figure["unit"] == "percent" else 1)
                assert here == pytest.approx(mean, rel=1e-12), figure["id"]
                seen += 1
            else:
                assert here is None, figure["id"]
        for row in ours.values():
            if row["method"] == all_of_one:
                assert {row[column] for column in columns} == {None}
    assert seen > (0 if paper == "rope_base" else 50)


def test_a_paper_stands_beside_each_study_and_ours_only_beside_its_own(tmp_path):
    cells = [
        Ours("pi", False, "ruler", task, 8192, 0.5, study=study)
        for study in ("a", "b")
        for task in next(f for f in figures_of("lceg.table_3"))["mean_tasks"].split()
    ]
    built = written(tmp_path / "catalog.duckdb", cells)
    asked = (
        "SELECT DISTINCT study, source, count(*) AS n FROM lceg.table_3 GROUP BY ALL ORDER BY ALL"
    )
    assert [tuple(row.values()) for row in ask(built, asked)] == [
        ("a", "ours", 11), ("a", "paper", 11), ("b", "ours", 11), ("b", "paper", 11),
    ]  # fmt: skip
    (row,) = ask(built, "FROM lceg.table_3 WHERE study = 'b' AND source = 'ours' AND method = 'pi'")
    assert (row["at_8k"], row["at_4k"], row["lengths"]) == (50.0, None, [8192])


def test_settings_of_our_training_stand_beside_the_papers(tmp_path):
    pi = Ours("pi", False, "ruler", "vt", 8192, 0.5)
    built = tmp_path / "with.duckdb"
    moment = pa.scalar(0, pa.timestamp("us")).as_py()
    artifact = {
        "artifact": "c" * 12, "kind": "finetune", "name": "n", "folder": "f", "intact": True,
        "num_files": 1, "bytes": 1, "attempts": 1, "seconds": 1.0, "environment": "e",
        "started_at": moment, "created_at": moment, "result": "{}", "execution": "{}",
        "spec": json.dumps({
            "row_length": 512, "num_steps": 10,
            "training": {"tokens_per_step": 4096, "learning_rate": 1e-4},
        }),
    }  # fmt: skip
    cell = {
        **{name: value for name, value in vars(pi).items() if name not in NOT_OF_A_CELL},
        "cell": "0" * 12, "position": 0, "exact_attention": True, "attempts": 1, "status": "done",
        "checkpoint": "c" * 12,
    }  # fmt: skip
    tables = {"cell": [cell], "artifact": [artifact]}
    write_tables({name: pa.Table.from_pylist(rows) for name, rows in tables.items()}, built)
    (ours,) = ask(built, "FROM lceg.table_7 WHERE source = 'ours'")
    assert ours == {
        "study": "s", "base_model": "llama2_7b", "paper_method": "PI", "method": "pi",
        "source": "ours", "train_length": 512.0, "train_tokens": 40960.0, "scale": None,
        "batch_size": 8.0, "learning_rate": 1e-4,
    }  # fmt: skip
    (paper,) = ask(built, "FROM lceg.table_7 WHERE source = 'paper' AND method = 'pi'")
    assert (paper["study"], paper["train_tokens"], paper["batch_size"]) == ("s", 1e9, 32)


NOT_OF_A_CELL = ("value", "metric", "higher_is_better")


# Figures


@pytest.fixture(scope="module")
def drawn(tmp_path_factory) -> Path:
    """Needles at two depths in two seeds, and what else the figures show; one seed is missing."""
    cells: list[dict[str, Any]] = []
    rows: dict[str, list[dict[str, Any]]] = {"cell": cells, "score": [], "sample": []}
    rows["token_nll"] = []

    def add(benchmark: str, task: str, seed: int, value: float | None, method: str) -> str:
        short = f"{len(cells):012}"
        cells.append({
            "study": "s", "position": len(cells), "cell": short, "base_model": "toy_llama",
            "method": method, "frozen": True, "exact_attention": True, "seed": seed,
            "benchmark": benchmark, "task": task, "eval_length": 512, "profile": "tiny",
            "attempts": 1, "status": "missing" if value is None else "done",
        })  # fmt: skip
        if value is not None:
            units = {"perplexity": "perplexity", "nll_by_position": "nats"}
            unit = units.get(benchmark, "accuracy")
            rows["score"].append({
                "cell": short, "metric": unit, "value": value, "num_samples": 2,
                "higher_is_better": unit == "accuracy", "is_default": True, "unit": unit,
            })  # fmt: skip
        return short

    for method, second in (("pi", 1.0), ("ntk_64k", None)):
        for seed, value in enumerate((0.5, second)):
            cell = add("needle", "single", seed, value, method)
            if value is not None:
                rows["sample"] += [
                    {"cell": cell, "sample": n, "eval_length": 512, "depth": depth, "score": score}
                    for n, (depth, score) in enumerate(((0.0, 1.0), (50.0, 2 * value - 1)))
                ]
    add("many_shot", "shots_10", 0, 0.25, "pi")
    add("many_shot", "shots_2", 0, 0.5, "pi")
    add("perplexity", "code", 0, 3.0, "pi")
    add("longbench", "trec", 0, 0.125, "pi")
    nll = add("nll_by_position", "code", 0, 1.5, "pi")
    rows["token_nll"] += [{"cell": nll, "position_bin": at, "nll": 1.0 + at} for at in (0, 64)]
    path = tmp_path_factory.mktemp("figures") / "catalog.duckdb"
    write_tables({name: pa.Table.from_pylist(found) for name, found in rows.items()}, path)
    return path


def shown(catalog: Path, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in ask(catalog, sql)]


def test_a_needles_map_is_the_mean_over_seeds_and_empty_where_a_seed_is_missing(drawn):
    asked = "SELECT method, eval_length, depth, score, num_samples FROM lceg.figure_1"
    assert shown(drawn, asked) == [
        ("ntk_64k", 512, 0.0, None, 1), ("ntk_64k", 512, 50.0, None, 1),
        ("pi", 512, 0.0, 1.0, 2), ("pi", 512, 50.0, 0.5, 2),
    ]  # fmt: skip
    assert {row[0] for row in shown(drawn, "SELECT method FROM lceg.figure_5")} == {"ntk_64k"}


def test_the_other_figures_are_points_of_their_benchmarks(drawn):
    assert shown(drawn, "SELECT shots, accuracy FROM lceg.figure_2") == [(2, 0.5), (10, 0.25)]
    assert shown(drawn, "SELECT position_bin, nll FROM lceg.figure_3") == [(0, 1.0), (64, 65.0)]
    (point,) = ask(drawn, "FROM lceg.figure_4")
    columns = ("method", "eval_length", "perplexity", "needle", "longbench", "ruler")
    assert [point[name] for name in columns] == ["pi", 512, 3.0, 0.75, 0.125, None]
