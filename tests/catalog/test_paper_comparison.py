"""Our scores beside the papers', and how far two orders of methods agree.

Strategy: shipped plans with the papers' own figures give these back; orders are compared by scipy.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy import stats

from catalog import build
from catalog.build import write_tables
from flows.settings import study_path
from lce_core.study.plan import compile_study
from lce_core.study.study_file import load_study
from tests.catalog.test_catalog import ask, compares_with_papers, documented_queries
from tests.catalog.test_reference import SCORES, Row
from tests.support.digests import catalog_digest

CONTRADICTED = {"lceg-01", "lceg-02", "lceg-03", "harpe-01", "harpe-02", "yarn-04"}

PRINTED_TWICE = {"our reproduction of LongLora", "three stages, uniform"}
"""Second variants of a label: LongLoRA trained anew, and HARPE's other split of tokens."""


@dataclass(frozen=True)
class Ours:
    """A cell of ours, done unless it has no value."""

    method: str
    frozen: bool
    benchmark: str
    task: str
    eval_length: int
    value: float | None
    train_length: int | None = 32768
    target_context: int = 32768
    profile: str = "faithful"
    base_model: str = "llama2_7b"
    seed: int = 0
    metric: str = "default"
    higher_is_better: bool = True
    study: str = "s"


def written(path: Path, cells: list[Ours]) -> Path:
    rows, scores = [], []
    for position, cell in enumerate(cells):
        axes = vars(cell).copy()
        value, metric = axes.pop("value"), axes.pop("metric")
        higher = axes.pop("higher_is_better")
        status = "missing" if value is None else "done"
        short = f"{position:012}"
        rows.append(
            {**axes, "position": position, "cell": short, "exact_attention": True, "attempts": 1,
             "status": status}
        )  # fmt: skip
        if value is not None:
            scores.append(
                {"cell": short, "metric": metric, "value": value, "num_samples": 1,
                 "higher_is_better": higher, "is_default": metric == "default",
                 "unit": "accuracy" if higher else "perplexity"}
            )  # fmt: skip
    tables = {"cell": rows, "score": scores}
    path.unlink(missing_ok=True)
    write_tables({name: pa.Table.from_pylist(found) for name, found in tables.items()}, path)
    return path


def printed(row: Row) -> float:
    return float(row["value"]) / (100 if row["unit"] == "percent" else 1)


def by_cell(paper: str) -> Mapping[tuple[str, ...], Row]:
    """The paper's figures of single cells, by what names them; of two prints the first."""
    found: dict[tuple[str, ...], Row] = {}
    for row in SCORES:
        single = not (row["mean_tasks"] or row["mean_lengths"])
        if row["paper"] == paper and row["value"] and row["method"] and single:
            key = tuple(row[name] for name in KEY)
            found.setdefault(key, row)
    return found


KEY = ("base_model", "method", "frozen", "benchmark", "profile", "task", "eval_length")


def reproduced(name: str, paper: str) -> list[Ours]:
    """A shipped study as planned, with the paper's own figures where it prints one for the cell."""
    plan, figures = compile_study(load_study(study_path(name)), {}), by_cell(paper)
    cells = []
    for c in plan.cells:
        key = tuple(
            str(value).lower() if isinstance(value, bool) else str(value)
            for value in (getattr(c, axis) for axis in KEY)
        )
        row = figures.get(key)
        cells.append(
            Ours(
                c.method, c.frozen, c.benchmark, c.task, c.eval_length,
                printed(row) if row else None, c.train_length, c.target_context, c.profile,
                c.base_model, c.seed, (row and row["metric"]) or "default",
                bool(row and row["unit"] != "perplexity"), name,
            )
        )  # fmt: skip
    return cells


@pytest.mark.parametrize(
    ("name", "paper", "tables", "num_rows"),
    [
        ("lceg-llama2-7b", "lceg", [1, 2, 3, 4, 10, 11, 12, 13, 14, 15, 16], 1000),
        ("lceg-phi2", "lceg", [5], 39),
        ("yarn-llama2-7b", "yarn", [1, 3, 7, 8, 10], 43),
        ("yarn-llama-7b-ablation", "yarn", [2, 5], 96),
        ("yarn-llama2-7b-8k", "yarn", [6], 18),
        ("harpe-llama2-7b", "harpe", [1, 3, 4, 5, 8], 345),
        ("rope-base-llama2-7b", "rope_base", [4], 4),
    ],
)
def test_a_study_that_finds_the_papers_figures_agrees_with_its_tables(
    name, paper, tables, num_rows, tmp_path
):
    built = written(tmp_path / "catalog.duckdb", reproduced(name, paper))
    rows = [
        row
        for row in ask(built, f"FROM paper_comparison WHERE paper = '{paper}'")
        if row["value"] is not None and row["paper_value"] is not None
    ]
    assert {int(row["place"].split()[1]) for row in rows} >= set(tables)
    assert len(rows) >= num_rows
    for row in rows:
        doubted = CONTRADICTED & set((row["errata"] or "").split())
        if not doubted and row["paper_method"] not in PRINTED_TWICE:
            assert row["difference"] == pytest.approx(0, abs=1.1e-4), row["id"]
    for row in ask(built, f"FROM paper_agreement WHERE paper = '{paper}'"):
        if row["num_columns"] == 1 and row["spearman"] is not None:
            assert row["spearman"] > 0.6
            assert row["spearman_low"] is None or row["spearman_low"] < 1


@pytest.fixture(scope="module")
def lceg(tmp_path_factory) -> Path:
    """A catalog in which the study of LCEG has found its figures, of two prints the first."""
    path = tmp_path_factory.mktemp("lceg") / "catalog.duckdb"
    return written(path, reproduced("lceg-llama2-7b", "lceg"))


def test_the_documented_comparisons_run_and_find_something(lceg):
    documented = [query for query in documented_queries() if compares_with_papers(query)]
    assert len(documented) == 2
    for sql in documented:
        assert ask(lceg, sql)


def test_a_swapped_column_is_seen(lceg):
    sql = "FROM paper_agreement WHERE place = 'Table 3' AND eval_length = "
    # Ours are the tasks of Table 12, of which Table 3 exchanges YaRN's and CLEX's mean.
    (swapped,) = ask(lceg, f"{sql} 4096")
    (same,) = ask(lceg, f"{sql} 8192")
    assert (same["spearman"], same["kendall"], same["num_methods"]) == pytest.approx((1, 1, 10))
    assert swapped["num_methods"] == 11
    assert max(swapped["spearman"], swapped["kendall"]) < 0.9999


PI = Ours("pi", False, "ruler", "vt", 8192, 0.5)
OTHER_AXES: tuple[dict[str, Any], ...] = (
    {"base_model": "toy_llama"},
    {"method": "pi_4"},
    {"frozen": True},
    {"profile": "fast"},
    {"task": "vt_2"},
    {"eval_length": 8191},
    {"benchmark": "needle"},
    {"train_length": 131072},
    {"target_context": 131072},
)


def test_a_cell_stands_beside_its_figure(tmp_path):
    built = written(tmp_path / "catalog.duckdb", [PI, replace(PI, seed=1, value=0.6)])
    (row,) = ask(built, "FROM paper_comparison")
    assert (row["paper"], row["place"], row["printed"]) == ("lceg", "Table 13", "91.20")
    assert row["value"] == pytest.approx(0.55)
    assert row["paper_value"] == pytest.approx(0.912)
    assert row["difference"] == pytest.approx(0.55 - 0.912)
    assert (row["num_done"], row["num_planned"], row["num_seeds"]) == (2, 2, 2)
    assert (row["rank"], row["paper_rank"]) == (1, 1)
    assert ask(built, "FROM paper_agreement") == []


def test_what_differs_on_one_axis_is_not_compared(tmp_path):
    others = [replace(PI, study=str(axis), **axis) for axis in OTHER_AXES]
    built = written(tmp_path / "catalog.duckdb", [PI, *others])
    assert [row["study"] for row in ask(built, "FROM paper_comparison")] == [PI.study]


def test_a_mean_with_a_hole_is_no_number(tmp_path):
    tasks = next(row["mean_tasks"] for row in SCORES if row["place"] == "Table 3").split()
    whole = [replace(PI, task=task) for task in tasks]
    about = "SELECT value, num_done, rank FROM paper_comparison WHERE place = 'Table 3'"
    built = written(tmp_path / "catalog.duckdb", whole)
    assert ask(built, about) == [{"value": 0.5, "num_done": 13, "rank": 1}]
    built = written(tmp_path / "catalog.duckdb", [*whole[:-1], replace(whole[-1], value=None)])
    assert ask(built, about) == [{"value": None, "num_done": 12, "rank": None}]
    # Not even planned: not the paper's mean, so no row.
    assert ask(written(tmp_path / "catalog.duckdb", whole[:-1]), about) == []


def test_the_digest_of_what_studies_computed_leaves_the_papers_out(tmp_path, monkeypatch):
    before = catalog_digest(written(tmp_path / "catalog.duckdb", [PI]))
    with monkeypatch.context() as without:
        without.setattr("catalog.build.load_papers", lambda connection: None)
        without.setattr("catalog.build._without_rows", build._without_rows.__wrapped__)
        built = written(tmp_path / "catalog.duckdb", [PI])
    assert ask(built, "SELECT count(*) AS n FROM paper_scores") == [{"n": 0}]
    assert catalog_digest(built) == before


TABLE_13 = [
    row for row in SCORES
    if row["paper"] == "lceg" and row["place"] == "Table 13" and row["value"]
    and row["task"] == "vt"
]  # fmt: skip


def like(row: Row) -> dict[str, Any]:
    """What says which method of the paper a cell of ours is."""
    return {
        "method": row["method"],
        "frozen": row["frozen"] == "true",
        "train_length": int(row["train_length"]),
        "target_context": int(row["target_context"]) if row["target_context"] else 32768,
    }


def column(values: list[float]) -> list[Ours]:
    """Our scores of the variable-tracking column of Table 13, in its order of methods."""
    pairs = zip(TABLE_13, values, strict=False)
    return [replace(PI, value=value, **like(row)) for row, value in pairs]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("orders") / "catalog.duckdb"


COLUMNS = st.lists(st.integers(0, 12).map(lambda n: n / 8), min_size=1, max_size=10)


# An example is a catalog of many columns, so few examples compare hundreds of them.
@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(drawn=[[0.25, 0.125, 0.375, 0.0]])
@given(drawn=st.lists(COLUMNS, min_size=10, max_size=40))
def test_agreement_is_that_of_scipy(drawn, place):
    cells = [
        replace(cell, study=f"{number}")
        for number, values in enumerate(drawn)
        for cell in column(values)
    ]
    rows = {row["study"]: row for row in ask(written(place, cells), "FROM paper_agreement")}
    assert rows.keys() == {f"{n}" for n, values in enumerate(drawn) if len(values) >= 3}
    for study, row in rows.items():
        values = drawn[int(study)]
        theirs = [printed(row) for row in TABLE_13][: len(values)]
        assert (row["num_methods"], row["num_columns"]) == (len(values), 1)
        if len(set(values)) == 1:
            assert (row["spearman"], row["kendall"]) == (None, None)
            continue
        assert row["spearman"] == pytest.approx(stats.spearmanr(values, theirs).statistic)
        assert row["kendall"] == pytest.approx(stats.kendalltau(values, theirs).statistic)
        for name in ("spearman", "kendall"):
            low, high = row[f"{name}_low"], row[f"{name}_high"]
            assert -1 <= row[name] <= 1
            if len(values) < 5:
                assert (low, high) == (None, None)
            else:
                assert -1 <= low <= row[name] <= high <= 1
                assert low < high


def test_an_interval_is_that_of_bonett_and_wright(place):
    theirs = [printed(row) for row in TABLE_13]
    ours = [theirs[1], theirs[0], *theirs[2:-2], theirs[-1], theirs[-2]]
    (row,) = ask(written(place, column(ours)), "FROM paper_agreement")
    n, r, tau = len(ours), row["spearman"], row["kendall"]
    assert (n, r < 1, tau < 1) == (10, True, True)
    errors = (math.sqrt((1 + r**2 / 2) / (n - 3)), math.sqrt(0.437 / (n - 4)))
    for name, value, error in zip(("spearman", "kendall"), (r, tau), errors, strict=True):
        z = np.arctanh(value)
        for end, sign in (("low", -1), ("high", 1)):
            bound = np.tanh(z + sign * stats.norm.ppf(0.975) * error)
            assert row[f"{name}_{end}"] == pytest.approx(bound)


def test_a_table_agrees_by_the_mean_place_of_each_method(tmp_path):
    cells = []
    table = [row for row in SCORES if row["place"] == "Table 13" and row["value"]]
    names = list(dict.fromkeys(row["method"] for row in table))
    for row in table:
        # Ours is the alphabet in every task, but two methods are without CWE.
        left_out = row["task"] == "cwe" and row["method"] in ("pi", "yarn")
        if row["task"] in ("vt", "cwe", "fwe") and not left_out:
            value = sorted(names).index(row["method"]) / 10
            cell = replace(PI, task=row["task"], value=value, **like(row))
            cells.append(cell)
    built = written(tmp_path / "catalog.duckdb", cells)
    rows = ask(built, "FROM paper_agreement")
    (whole,) = [row for row in rows if row["num_columns"] == 3]
    assert [row["num_methods"] for row in rows if row["num_columns"] == 1] == [8, 10, 10]
    shared = [name for name in names if name not in ("pi", "yarn")]
    assert (whole["num_methods"], whole["task"], whole["benchmark"]) == (len(shared), None, None)
    values = {(row["method"], row["task"]): -float(row["value"]) for row in table}
    places = [
        np.mean(
            [
                stats.rankdata([values[other, task] for other in shared])[shared.index(name)]
                for task in ("vt", "cwe", "fwe")
            ]
        )
        for name in shared
    ]
    ours = [-sorted(names).index(name) for name in shared]
    assert whole["spearman"] == pytest.approx(stats.spearmanr(ours, places).statistic)
    assert whole["kendall"] == pytest.approx(stats.kendalltau(ours, places).statistic)
