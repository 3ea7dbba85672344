"""Methods without all their cells, or with other cells than others, by hand: what is shown of them.

`test_means.py` draws such studies at random.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from pathlib import Path

from catalog.queries import run_query
from dashboards.contents import read_contents
from dashboards.report import render
from tests.support.catalogs.holed_catalog import TARGET, Cell, written

FRAMED = r'class="field h\d+ best" data-method="(\w+)"'


def test_a_method_without_its_hardest_task_has_no_mean_and_is_not_the_best(tmp_path: Path) -> None:
    # Of two tasks one method did both; three others have only the easy one.
    other = {"none": "done", "pi": "failed", "yarn": "missing", "clex": "unavailable"}
    cells = [
        Cell(method, True, 0, "ruler", task, TARGET, status if task == "vt" else "done", value)
        for method, status in other.items()
        for task, value in (("fwe", 1.0), ("vt", 0.2))
    ]
    catalog = written(tmp_path, [cells])
    _, overview = run_query(catalog, "SELECT method, ruler FROM overview")
    assert overview == [("none", 0.6), ("pi", None), ("yarn", None), ("clex", None)]
    _, told = run_query(
        catalog, "SELECT value_of_done, missing FROM overview WHERE method <> 'none'"
    )
    assert told == [
        (
            {"ruler": 1.0, "ruler_longest": 1.0},
            "failed: ruler/vt at 512 seed 0 (non_finite: got NaN)",
        ),
        ({"ruler": 1.0, "ruler_longest": 1.0}, "missing: ruler/vt at 512 seed 0 (not run yet)"),
        (
            {"ruler": 1.0, "ruler_longest": 1.0},
            "unavailable: ruler/vt at 512 seed 0 (beyond its reach)",
        ),
    ]
    _, ranks = run_query(catalog, "SELECT method, rank, is_best FROM benchmark_by_length")
    # The only value of a column is no best.
    assert ranks == [(name, 1 if name == "none" else None, False) for name in other]
    page = render(read_contents(catalog, "study-0"))
    assert re.findall(FRAMED, page) == []
    told = re.findall(r'class="field absent"[^>]*data-tooltip="(.*?)"', page)
    rest = "; mean over the finished cells: 1.000"
    assert told == [
        f"pi, ruler at 512: failed: vt seed 0 (non_finite: got NaN){rest}",
        f"yarn, ruler at 512: missing: vt seed 0 (not run yet){rest}",
        f"clex, ruler at 512: unavailable: vt seed 0 (beyond its reach){rest}",
    ]


def test_methods_with_other_tasks_or_seeds_are_not_ranked_against_each_other(
    tmp_path: Path,
) -> None:
    def cells(method: str, tasks: str, seeds: int, value: float) -> list[Cell]:
        axes = itertools.product(tasks.split(), range(seeds))
        return [Cell(method, True, s, "ruler", t, TARGET, "done", value) for t, s in axes]

    same = [*cells("none", "fwe vt", 2, 0.25), *cells("pi", "fwe vt", 2, 0.5)]
    fewer = cells("yarn", "fwe vt", 1, 0.75)
    others = cells("clex", "fwe qa_1", 2, 1.0)
    ranked = "SELECT method, rank, is_best FROM benchmark_by_length ORDER BY rank, method"
    for number, (drawn, expected) in enumerate(
        [
            (same, [("pi", 1, True), ("none", 2, False)]),
            (same + fewer, [("pi", 1, False), ("yarn", 1, False), ("none", 2, False)]),
            (same + others, [("clex", 1, False), ("pi", 1, False), ("none", 2, False)]),
        ]
    ):
        (tmp_path / str(number)).mkdir()
        catalog = written(tmp_path / str(number), [drawn])
        assert run_query(catalog, ranked)[1] == expected
        page = render(read_contents(catalog, "study-0"))
        framed = re.findall(FRAMED, page.partition('id="length"')[0])
        # A task has a best among those who did it; of other seeds none is.
        assert framed == {0: ["pi"], 1: [], 2: ["clex", "pi"]}[number]


def test_a_study_that_is_read_again_has_the_same_task_sets_in_any_order(tmp_path: Path) -> None:
    cells = [
        Cell(method, True, seed, "ruler", task, TARGET, "done", 0.5)
        for method in ("none", "pi")
        for task in ("fwe", "qa_1", "vt")
        for seed in (0, 1)
    ]
    fewer = [cell for cell in cells if cell.seed == 0]
    clean = [replace(cell, profile="clean") for cell in cells]
    catalog = written(tmp_path, [cells, cells[::-1], fewer, clean])
    _, sets = run_query(
        catalog,
        "SELECT DISTINCT study, task_set, parts FROM benchmark_by_length JOIN task_sets"
        " USING (task_set, benchmark) ORDER BY study",
    )
    assert len(sets) == 4  # one of each study, for both of its methods
    assert sets[0][1:] == sets[1][1:]
    assert len({task_set for _, task_set, _ in sets}) == 3
    assert sets[2][2] == "ruler/fwe/tiny/0 ruler/qa_1/tiny/0 ruler/vt/tiny/0"
