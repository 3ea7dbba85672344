"""Benchmarks of plug-in folders appear in overview, glance, depths and claims by their kind alone.

No benchmark of this catalog is shipped.
"""

import re
from pathlib import Path

import pytest

from catalog.queries import open_catalog, run_query
from dashboards.claims import claims
from dashboards.contents import Contents, read_contents
from dashboards.sections import heat_maps
from tests.support.catalogs.answered_catalog import Answered, written

METHODS = {"none": 0.0, "pi": 0.25, "yarn": 0.75}


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    cells = []
    for method, share in METHODS.items():
        for length in (128, 512, 1024):
            right = [float(index < share * 40) for index in range(40)]
            cells += [
                Answered(method, True, 0, "own_text", "code", length, [5.0 - share] * 40,
                         5.0 - share, unit="perplexity", kind="text"),
                Answered(method, True, 0, "first_number", "single", length, right, share,
                         depths=[25.0 * (index % 5) for index in range(40)], kind="retrieval"),
                Answered(method, True, 0, "sums", "two", length, right, share,
                         depths=[1.5 * index for index in range(40)], kind="reasoning"),
                Answered(method, True, 0, "lessons", "shots_3", length, right, share,
                         kind="learning"),
            ]  # fmt: skip
    return written(tmp_path_factory.mktemp("own") / "catalog.duckdb", cells)


@pytest.fixture(scope="module")
def contents(catalog) -> Contents:
    return read_contents(catalog, "s").of("toy_llama")


def test_the_overview_has_their_means_at_the_target_context(catalog):
    columns = "method, value_by_benchmark, longest_length"
    _, rows = run_query(catalog, f"SELECT {columns} FROM overview")
    for method, means, longest in rows:
        share = METHODS[method]
        own = {"first_number": share, "sums": share, "lessons": share, "own_text": 5.0 - share}
        longer = {f"{name}_longest": own[name] for name in ("first_number", "own_text")}
        assert (means, longest) == (own | longer, 1024)


def test_any_perplexity_orders_the_methods(catalog):
    _, rows = run_query(
        catalog,
        "SELECT DISTINCT benchmark, kendall FROM perplexity_agreement WHERE eval_length = 512",
    )
    assert dict(rows) == {"first_number": 1.0, "sums": 1.0, "lessons": 1.0}
    _, points = run_query(catalog, "SELECT DISTINCT benchmark FROM perplexity_vs_downstream")
    assert {name for (name,) in points} == dict(rows).keys()


def test_each_kind_has_a_heat_map_and_a_share_of_comparisons_won(contents):
    shown = heat_maps.glance(contents)
    assert re.findall(r'data-block="([^"]+)"', shown)
    kinds = ["perplexity", "retrieval", "reasoning", "learning"]
    drawn = [name for name in heat_maps.MEASURES if f'data-figure="{name.capitalize()}"' in shown]
    assert drawn == kinds
    won = {(row["measure"], row["method"]): row["won"] for row in contents.standing}
    for measure in kinds:
        assert [won[measure, method] for method in METHODS] == [0.0, 0.5, 1.0]


def test_only_depths_on_a_grid_of_whole_per_cents_have_a_picture(contents):
    assert {row["benchmark"] for row in contents.depths} == {"first_number"}
    assert {row["depth"] for row in contents.depths} == {0.0, 25.0, 50.0, 75.0, 100.0}
    assert "Needles by length and depth" in heat_maps.needles(contents)


def test_claims_follow_the_order_of_kinds(catalog):
    with open_catalog(catalog) as connection:
        found = claims(connection, "s")
    benchmarks = ["own_text", "first_number", "sums", "lessons"]
    assert list(dict.fromkeys(one.benchmark for one in found)) == benchmarks
