import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from typer.testing import CliRunner, Result

from lce.cli import app
from lce_core.errors import SpecError
from tests.support.catalogs.answered_catalog import Answered, written

CELLS = [
    Answered(method, frozen, seed, "perplexity", "docs", length, [1.0], length + seed / 3)
    for method, frozen in (("none", True), ("yarn", True), ("yarn", False))
    for seed in (0, 1)
    for length in (256, 512)
]


def home(folder: Path, cells: Sequence[Answered]) -> Path:
    folder.mkdir()
    written(folder / "catalog.duckdb", cells)
    return folder


def diff(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["diff", *map(str, arguments)])


def test_homes_with_equal_scores_end_with_0(tmp_path):
    a, b = home(tmp_path / "a", CELLS), home(tmp_path / "b", CELLS)
    found = diff(a, b / "catalog.duckdb", "--study", "s")
    assert found.exit_code == 0
    assert "12 scores in both: 12 equal, 0 different" in found.output
    assert diff(a, b, "--json").output == "[]\n"


def test_other_values_and_cells_of_one_side_end_with_1(tmp_path):
    tuned = CELLS[-1]
    a = home(tmp_path / "a", CELLS)
    b = home(
        tmp_path / "b",
        [*CELLS[1:-1], replace(tuned, value=tuned.value + 1e-12), replace(tuned, method="pi")],
    )
    found = diff(a, b)
    assert found.exit_code == 1
    assert "11 scores in both: 10 equal, 1 different (0 with the same cell id)" in found.output
    assert "1 only in a, 1 only in b" in found.output
    changed, only_a, only_b = json.loads(diff(a, b, "--json").output)
    assert changed.items() >= {"variant": "yarn-tuned", "seed": 1, "eval_length": 512}.items()
    assert (changed["a"], changed["b"]) == (tuned.value, tuned.value + 1e-12)
    assert changed["difference"] == changed["b"] - changed["a"] != 0
    assert (only_a["variant"], only_a["b"]) == ("none", None)
    assert (only_b["variant"], only_b["a"]) == ("pi-tuned", None)


def test_a_value_that_changed_under_the_same_id_is_told(tmp_path):
    a = home(tmp_path / "a", CELLS)
    b = home(tmp_path / "b", [replace(CELLS[0], value=0.5), *CELLS[1:]])
    (row,) = json.loads(diff(a, b, "--json").output)
    assert row["same_id"] is True
    assert row["cell_a"] == row["cell_b"]


def test_a_benchmark_that_a_study_has_twice_is_compared_entry_by_entry(tmp_path):
    twice = [CELLS[0], replace(CELLS[0], value=1.0)]
    a = home(tmp_path / "a", twice)
    b = home(tmp_path / "b", [replace(CELLS[0], value=2.0), twice[1]])
    (row,) = json.loads(diff(a, b, "--json").output)
    assert (row["a"], row["b"]) == (256.0, 2.0)


def test_nothing_to_compare_is_refused(tmp_path):
    empty = home(tmp_path / "empty", [replace(CELLS[0], scores=[])])
    full = home(tmp_path / "full", CELLS)
    for arguments, message in (
        ((empty, empty), "two homes without a score"),
        ((empty, full, "--study", "toy"), "'toy', of which neither home has a score"),
        ((full, tmp_path), "lce rebuild catalog"),
        ((full, tmp_path / "nowhere"), "lce rebuild catalog"),
    ):
        found = diff(*arguments)
        assert isinstance(found.exception, SpecError)
        assert message in str(found.exception)
