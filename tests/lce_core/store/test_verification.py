"""Two results of a cell are compared number by number, and samples of cells follow from a seed."""

import hashlib
import math
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.errors import SpecError
from lce_core.store.artifacts import Attempt
from lce_core.store.cell_tables import SAMPLES, SAMPLES_FILE, TOKEN_NLL, TOKEN_NLL_FILE
from lce_core.store.records import Record
from lce_core.store.verification import compare, sampled
from tests.support.free_steps import free_step

Cell = tuple[Path, Record]
PRINTS = [hashlib.sha256(str(n).encode()).hexdigest() for n in range(200)]


def draw(prints: list[str], sample: str, seed: int = 0) -> list[str]:
    return sampled(prints, sample, seed)


@given(st.integers(1, 200), st.floats(0.01, 100), st.integers(0, 5))
def test_a_share_is_rounded_up_and_drawn_in_order(count, share, seed):
    share = round(share, 2)
    drawn = draw(PRINTS[:count], f"{share}%", seed)
    assert len(drawn) == math.ceil(count * share / 100)
    assert drawn == [one for one in PRINTS[:count] if one in drawn]
    assert drawn == draw(PRINTS[:count], f"{share}%", seed)


def test_another_seed_draws_others_and_a_grown_study_mostly_the_same():
    assert draw(PRINTS, "10") != draw(PRINTS, "10", seed=1)
    assert len(draw(PRINTS, "10")) == 10
    assert draw(PRINTS, "1000") == PRINTS
    fewer = draw(PRINTS[:150], "10")
    assert set(draw(PRINTS, "10")) & set(PRINTS[:150]) <= set(fewer)


@pytest.mark.parametrize("sample", ["0%", "101%", "2.5", "five"])
def test_a_sample_that_is_none_is_refused(sample):
    with pytest.raises(SpecError, match="a percentage above 0 and up to 100"):
        draw(PRINTS, sample)


@pytest.fixture
def cell(store) -> Cell:
    step = free_step("cell", "x", {"n": 1}, {})
    store.ensure(step, write, {})
    record = store.record(step)
    assert record
    return store.path(step), record


def write(attempt: Attempt) -> dict[str, Any]:
    write_samples(attempt.out, [0.5, 1.0, math.nan])
    write_losses(attempt.out)
    return {"scores": [{"metric": "accuracy", "value": 0.75}, {"metric": "nll", "value": 2.5}]}


def write_samples(folder: Path, scores: list[float], prediction: str = "p") -> None:
    rows = [
        {"sample": n, "num_prompt_tokens": 8, "depth": None, "prediction": prediction,
         "reference": "r", "score": score, "cluster": None}
        for n, score in enumerate(scores)
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows, SAMPLES), folder / SAMPLES_FILE)


def write_losses(folder: Path, first: float = 2.0) -> None:
    bins = [{"position_bin": start, "nll": first + start} for start in (0, 64)]
    pq.write_table(pa.Table.from_pylist(bins, TOKEN_NLL), folder / TOKEN_NLL_FILE)


def again(cell: Cell, **result: Any) -> Cell:
    """A copy of the cell with another result."""
    folder = cell[0].parent / "again"
    shutil.copytree(cell[0], folder)
    return folder, cell[1].model_copy(update={"result": {**cell[1].result, **result}})


def test_a_metric_that_moved_agrees_within_a_tolerance_and_one_that_lacks_never(cell):
    first, second = cell[1].result["scores"]
    other = again(cell, scores=[{**first, "value": 0.7575}, second])
    for tolerance, agrees in ((0.0, False), (0.009, False), (0.011, True)):
        found = compare(cell, other, tolerance)
        assert (found.identical, found.agrees) == (False, agrees)
        assert found.metrics[0].difference == pytest.approx(0.0075)
    found = compare(cell, (other[0], cell[1].model_copy(update={"result": {"scores": [first]}})), 1)
    assert not found.agrees
    assert (found.metrics[1].again, found.metrics[1].difference) == (None, None)


def test_samples_are_compared_one_by_one(cell):
    other = again(cell)
    for scores, samples, same, difference in (
        ([0.5, 0.25, math.nan], 3, 2, 0.75),
        ([0.5, 1.0], 3, 2, 0.0),
    ):
        write_samples(other[0], scores)
        found = compare(cell, other, 0.0)
        assert (found.num_samples, found.num_same_samples) == (samples, same)
        assert (found.agrees, found.identical) == (False, False)
        assert found.largest_sample_difference == difference
    # An answer that scores the same agrees and is not identical.
    write_samples(other[0], [0.5, 1.0, math.nan], prediction="another")
    found = compare(cell, other, 0.0)
    assert (found.num_same_samples, found.agrees, found.identical) == (0, True, False)


def test_a_missing_column_is_a_difference(cell):
    other = again(cell)
    file = other[0] / SAMPLES_FILE
    pq.write_table(pq.read_table(file).drop_columns(["reference"]), file)
    assert compare(other, cell, 0.0).num_same_samples == 0


def test_losses_by_position_are_compared(cell):
    other = again(cell)
    write_losses(other[0], 2.5)
    found = compare(cell, other, 0.0)
    assert (found.largest_nll_difference, found.agrees) == (0.5, False)
    assert found.num_same_samples == 3


def test_arrays_count_for_being_identical(cell):
    entry = next(iter(cell[1].files.values()))
    first = cell[1].model_copy(update={"files": {**cell[1].files, "arrays.safetensors": entry}})
    found = compare((cell[0], first), again(cell), 0.0)
    assert (found.agrees, found.identical) == (True, False)
