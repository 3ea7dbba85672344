"""A mean's interval for other seeds and prompts, in the catalog.

Strategy: scores drawn at random, and t intervals of scipy where the model is as simple as one.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.catalog.test_catalog import ask
from tests.support.catalogs.answered_catalog import Answered, written

SEEDS = 3


def answered(scores: list[list[float]], **told: object) -> list[Answered]:
    power = told.get("unit") == "perplexity"
    return [
        Answered(
            "yarn", False, seed, "passkey", "single", 512, own,
            value=float(np.exp(np.mean(own)) if power else np.mean(own)) if own else 0.0,
            **told,  # type: ignore[arg-type]
        )
        for seed, own in enumerate(scores)
    ]  # fmt: skip


def drawn(*size: int) -> list[list[float]]:
    return [list(map(float, row)) for row in np.random.default_rng(3).random(size)]


def mean(folder: Path, cells: list[Answered]) -> dict[str, Any]:
    (row,) = ask(written(folder / "c.duckdb", cells), "FROM mean_over_seeds")
    return row


def interval(values: list[float]) -> tuple[float, float]:
    low, high = stats.t.interval(
        0.95, len(values) - 1, loc=np.mean(values), scale=stats.sem(values)
    )
    return float(low), float(high)


def test_a_perplexity_has_the_interval_of_its_logarithm_to_first_order(tmp_path):
    (own,) = drawn(1, 20)
    cells = answered([own] * SEEDS, seeded=False, unit="perplexity")
    row = mean(tmp_path, cells)
    low, high = interval(own)
    value = float(np.exp(np.mean(own)))
    assert row["value"] == pytest.approx(value)
    assert row["ci_high"] - row["ci_low"] == pytest.approx(value * (high - low))


def test_documents_of_unequal_size_leave_the_mean_that_the_study_shows(tmp_path):
    scores = drawn(SEEDS, 20)
    cells = answered(scores, seeded=False, clusters=[*"aaaaaaabbbbbcccddeef"])
    built = written(tmp_path / "c.duckdb", cells)
    (row,) = ask(built, "FROM mean_over_seeds")
    (shown,) = ask(built, "FROM score_by_length")
    assert row["value"] == pytest.approx(shown["value"])
    assert row["num_documents"] == 6
    assert row["ci_low"] < row["value"] < row["ci_high"]
    few = answered(scores, seeded=False, clusters=[*"aaaaaaabbbbbcccddeee"])
    (row,) = ask(written(tmp_path / "few.duckdb", few), "FROM mean_over_seeds")
    assert (row["num_documents"], row["ci_low"], row["ci_high"]) == (5, None, None)


def test_one_seed_has_the_interval_over_its_prompts_and_a_missing_seed_no_row(tmp_path):
    (own,) = drawn(1, 20)
    for unit, bounds in (("accuracy", interval(own)), ("perplexity", np.exp(interval(own)))):
        one = written(tmp_path / f"{unit}.duckdb", answered([own], unit=unit))
        (row,) = ask(one, "FROM mean_over_seeds")
        assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(bounds))
        assert row["seed_sd"] is None
    holed = written(tmp_path / "holed.duckdb", answered([*drawn(2, 20), []]))
    assert ask(holed, "FROM mean_over_seeds") == []


def test_seeds_that_were_asked_different_documents_are_not_taken_for_the_same(tmp_path):
    first, second = answered(drawn(2, 4), seeded=False)
    other = [first, replace(second, samples=[4, 5, 6, 7])]
    assert ask(written(tmp_path / "c.duckdb", other), "FROM mean_over_seeds") == []
