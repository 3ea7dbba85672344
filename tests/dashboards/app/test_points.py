"""Points with any axes are means of the catalog; incomplete ones are not drawn."""

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from dashboards.app.catalog import Catalog
from dashboards.app.points import Measure, Points, measures, points
from dashboards.app.views.explorer import _in_runs
from dashboards.contents import Row, select
from dashboards.families import Variant
from tests.support.catalogs.answered_catalog import Answered, written

SEEDS = (0, 1)


def cells(*, hole: bool) -> list[Answered]:
    """Return two methods at two lengths; with `hole`, one seed of `yarn` at 512 is missing."""
    found = []
    for method, seed, length in itertools.product(("none", "yarn"), SEEDS, (128, 512)):
        for benchmark, task in (("perplexity", "code"), ("perplexity", "books"), ("needle", "one")):
            absent = hole and (method, seed, length, task) == ("yarn", 1, 512, "code")
            value = len(method) + seed / 10 + length / 1000 + (task == "code")
            unit = "accuracy" if benchmark == "needle" else benchmark
            scores = () if absent else (value,)
            found.append(
                Answered(method, True, seed, benchmark, task, length, scores, value, unit=unit)
            )
    return found


def read(folder: Path, drawn: list[Answered]) -> tuple[Catalog, list[Row]]:
    catalog = Catalog(written(folder / "catalog.duckdb", drawn))
    return catalog, catalog.rows("cell_scores", study="s")


def perplexity(rows: list[Row]) -> Measure:
    return next(one for one in measures(rows) if one.column == "perplexity")


def drawn(found: Points, *by: str) -> dict[tuple[object, ...], float]:
    return {tuple(point[name] for name in by): point["y"] for point in found.drawn}


@pytest.mark.parametrize("hole", [False, True])
def test_points_are_the_means_of_the_views_and_no_others(tmp_path, hole):
    catalog, rows = read(tmp_path, cells(hole=hole))
    for view, by in (
        ("benchmarks", ("variant", "eval_length")),
        ("scores", ("variant", "eval_length", "task")),
    ):
        found = points(rows, by, perplexity(rows))
        said = {
            (Variant.of(row).label, *(row[name] for name in by[1:])): row["value"]
            for row in select(catalog.rows(view, study="s"), benchmark="perplexity")
        }
        known = {key: value for key, value in said.items() if value is not None}
        assert drawn(found, *by) == pytest.approx(known)
        assert len(found.gaps) == len(said) - len(known) == hole


def test_an_unfinished_cell_has_its_methods_family(tmp_path):
    holed = [
        replace(one, extra={"family": "static"} if len(one.scores) else {})
        for one in cells(hole=True) if one.method == "yarn"
    ]  # fmt: skip
    _, rows = read(tmp_path, holed)
    assert {row["family"] for row in rows} == {"static"}
    found = points(rows, ("variant", "eval_length", "family"), perplexity(rows))
    assert [point["eval_length"] for point in found.drawn] == [128]
    assert [gap["eval_length"] for gap in found.gaps] == [512]


def test_no_line_crosses_a_gap():
    found = Points(
        [{"variant": name, "eval_length": at, "y": 1.0, "num_cells": 1}
         for name, at in (("pi", 128), ("pi", 512), ("yarn", 128), ("yarn", 512))],
        [{"variant": "pi", "eval_length": 256}],
        uneven=False,
    )  # fmt: skip
    runs = {(p["variant"], p["eval_length"]): p["run"] for p in _in_runs(found, "eval_length")}
    assert runs == {("pi", 128): 0, ("pi", 512): 1, ("yarn", 128): 0, ("yarn", 512): 0}


def test_means_over_different_lengths_are_uneven(tmp_path):
    everything = cells(hole=False)
    _, rows = read(tmp_path, [one for one in everything if one.method == "none" or one.seed == 0])
    assert points(rows, ("variant",), perplexity(rows)).uneven
    assert not points(rows, ("variant", "seed"), perplexity(rows)).uneven


def test_measures_against_another_are_those_of_the_same_cells_if_both_are_known(tmp_path):
    timed = [
        replace(one, extra={"seconds": 10.0 if one.benchmark == "needle" else 1000.0})
        for one in cells(hole=True)
    ]
    _, rows = read(tmp_path, timed)
    needle = next(one for one in measures(rows) if one.benchmark == "needle")
    cost = next(one for one in measures(rows) if one.column == "seconds")
    found = points(rows, ("variant", "eval_length"), needle, cost)
    assert {point["x"] for point in found.drawn} == {10.0}
    assert found.gaps == []  # what another benchmark lacks takes none away
    found = points(rows, ("variant", "eval_length"), perplexity(rows), needle)
    across = {(point["variant"], point["eval_length"]): point["x"] for point in found.drawn}
    assert across == pytest.approx(
        {("none", 128): 4.178, ("none", 512): 4.562, ("yarn", 128): 4.178}
    )
    assert len(found.gaps) == 1
