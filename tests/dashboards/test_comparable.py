"""Means over different tasks or seeds never share a column, and none of them is the best."""

from pathlib import Path

import pytest

from dashboards.contents import Row, read_contents
from dashboards.scores import comparable
from tests.support.catalogs.holed_catalog import Cell, written

TEXT = "perplexity"


def shown(folder: Path, *cells: tuple[str, int, str, str, float]) -> list[Row]:
    """Return what the report compares, of cells with method, seed, benchmark, task and value."""
    made = [
        Cell(method, True, seed, benchmark, task, 128, "done", value)
        for method, seed, benchmark, task, value in cells
    ]
    contents = read_contents(written(folder, [made]), "study-0")
    return comparable(contents.benchmarks, contents.scores)


def test_a_benchmark_is_split_by_task_if_methods_have_different_tasks(tmp_path):
    found = shown(
        tmp_path,
        ("none", 0, TEXT, "code", 1.0),
        ("none", 0, TEXT, "books", 1.0),  # before nobody
        ("pi", 0, TEXT, "code", 2.0),
        ("none", 0, "needle", "needle", 1.0),
    )
    assert [(one["benchmark"], one["method"], one["is_best"]) for one in found] == [
        ("perplexity\ncode", "none", True),
        ("perplexity\nbooks", "none", False),
        ("perplexity\ncode", "pi", False),
        ("needle", "none", False),
    ]


@pytest.mark.parametrize("seed", [0, 1])
def test_no_value_is_best_if_methods_have_different_seeds(tmp_path, seed):
    found = shown(
        tmp_path,
        ("none", 0, TEXT, "code", 1.0),
        ("none", 0, TEXT, "books", 1.0),
        ("pi", seed, TEXT, "code", 2.0),
    )
    assert [one["is_best"] for one in found] == [seed == 0, False, False]
