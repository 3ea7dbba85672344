"""Means over different tasks or seeds never share a column; the papers section has a table."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dashboards.contents import Contents, Row, read_contents
from dashboards.families import MOST_LINES, Family, Variant, comparable, panels
from dashboards.sections import comparisons, curves, heat_maps
from tests.support.catalogs.holed_catalog import TARGET, Cell, written


def contents_of(tmp_path: Path, cells: list[Cell]) -> Contents:
    return read_contents(written(tmp_path, [cells]), "study-0").of("toy_llama")


def test_a_benchmark_with_many_tasks_has_one_figure_of_the_mean(tmp_path):
    cells = [
        Cell(method, True, 0, "ruler", f"task_{task}", length, "done", task / 8)
        for method in ("none", "pi")
        for task in range(5)
        for length in (128, TARGET)
    ]
    shown = curves.against_length(contents_of(tmp_path, cells))
    assert re.findall(r'data-figure="([^"]+)"', shown) == ["ruler: mean of 5 tasks"]
    marks = re.findall(
        r'data-method="pi" data-frozen="true" data-x="\d+" data-value="([^"]+)"', shown
    )
    assert {float(mark) for mark in marks} == {0.25}


def test_the_papers_section_has_a_table_or_says_that_no_score_matches(tmp_path):
    contents = contents_of(tmp_path, [Cell("pi", True, 0, "ruler", "qa", TARGET, "done", 0.5)])
    assert "<table" not in (none := comparisons.papers(contents))
    assert "No paper reports a score" in none
    names = ["paper", "place", "method", "frozen", "benchmark", "task", "eval_length"]
    row = dict(zip(names, ["lceg", "Table 3", "pi", True, "ruler", "qa", 32768], strict=True))
    row |= {"value": 0.5, "paper_value": 0.625, "difference": -0.125, "rank": 2, "paper_rank": 1}
    contents.papers.append(row)
    shown = comparisons.papers(contents)
    assert re.findall(r'data-value="([^"]+)"', shown) == [
        "32768", "0.5", "0.625", "-0.125", "2", "1",
    ]  # fmt: skip
    contents.agreement.append({"study": "s", "base_model": "b", "paper": "lceg", "kendall": 0.75})
    assert comparisons.papers(contents).count('data-save="csv"') == 2


def test_won_counts_equal_tasks_beyond_the_trained_context(tmp_path):
    losses = {"none": (3.0, 9.0), "pi": (4.0, 5.0), "yarn": (5.0, 5.0)}  # at 128 and the target
    found = {"none": 0.1, "pi": 0.9, "yarn": 0.8}
    cells = [
        Cell(method, True, 0, "perplexity", "code", length, "done", value)
        for method, values in losses.items()
        for length, value in zip((128, TARGET), values, strict=True)
    ]
    cells += [
        Cell(method, True, 0, "passkey", "passkey", TARGET, "done", value)
        for method, value in found.items()
    ]
    standing = contents_of(tmp_path, cells).standing
    assert {(row["measure"], row["method"]): row["won"] for row in standing} == {
        ("perplexity", "none"): 0.0, ("perplexity", "pi"): 0.75, ("perplexity", "yarn"): 0.75,
        ("retrieval", "none"): 0.0, ("retrieval", "yarn"): 0.5, ("retrieval", "pi"): 1.0,
    }  # fmt: skip


def test_colours_show_the_distance_from_the_best_of_the_column(tmp_path):
    values = {"none": 4.0, "pi": 4.0 * 1.5**0.5, "yarn": 6.0, "clex": 60.0}
    cells = [
        Cell(method, True, 0, "perplexity", "code", TARGET, "done", value)
        for method, value in values.items()
    ]
    shown = heat_maps.glance(contents_of(tmp_path, cells))
    steps = re.findall(r'class="field h(\d+)[^>]*data-value="([^"]+)"', shown)
    assert sorted((float(value), int(step)) for step, value in steps) == [
        (4.0, 10), (values["pi"], 5), (6.0, 0), (60.0, 0),
    ]  # fmt: skip


TEXT = "perplexity"


def shown(folder: Path, *cells: tuple[str, int, str, str, float]) -> list[Row]:
    """Return what the report compares, of cells with method, seed, benchmark, task and value."""
    made = [
        Cell(method, True, seed, benchmark, task, 128, "done", value)
        for method, seed, benchmark, task, value in cells
    ]
    contents = contents_of(folder, made)
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


members = st.lists(
    st.builds(Variant, st.sampled_from("abcdefghijklmnop"), st.booleans()), unique=True
)


@given(members, st.sets(st.integers(0, 31)))
def test_each_shown_variant_is_in_one_panel_of_at_most_six(known, left_out):
    shown = [one for number, one in enumerate(known) if number not in left_out]
    family = Family("base", "Change of base", tuple(known))
    found = panels([family], shown)
    assert sorted(map(str, (one for part in found for one in part.variants))) == sorted(
        map(str, shown)
    )
    assert all(0 < len(part.variants) <= MOST_LINES for part in found)
    assert len({part.title for part in found}) == len(found)
