"""A mean's interval for other seeds and prompts, in the catalog.

Strategy: scores drawn at random, and t intervals of scipy where the model is as simple as one.
"""

import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

from catalog.comparisons.seeds import UNIT_RANGES
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


NAMES = {
    "spearman": (-1.0, 1.0),
    "kendall": (-1.0, 1.0),
    "p_value": (0.0, 1.0),
    "p_adjusted": (0.0, 1.0),
    "level": (0.0, 1.0),
}
"""Range of every column whose name begins so."""


def cells(draw: random.Random) -> list[Answered]:
    found = []
    for number, method in enumerate(("none", "pi", "yarn", "ntk_frozen", "self_extend", "rerope")):
        for seed in range(3):
            for length in (128, 256, 512):
                right = [float(draw.random() < (0.02, 0.98)[number % 2]) for _ in range(12)]
                value = sum(right) / 12
                axes = (method, method == "none", seed)
                found.append(Answered(*axes, "passkey", "single", length, right, value=value))
                losses = [abs(draw.gauss(0, 0.02)) for _ in range(12)]
                found.append(
                    Answered(
                        *axes, "perplexity", "code", length, losses, unit="perplexity",
                        value=math.exp(sum(losses) / 12), seeded=False,
                    )
                )  # fmt: skip
    return found


def test_intervals_correlations_and_probabilities_stay_within_their_range(tmp_path):
    checked, at_an_end = set(), 0
    with duckdb.connect(str(written(tmp_path / "c.duckdb", cells(random.Random(5))))) as catalog:
        main = "SELECT view_name FROM duckdb_views() WHERE NOT internal AND schema_name = 'main'"
        views = catalog.execute(main).fetchall()
        for (view,) in views:
            for row in catalog.sql(f'FROM "{view}"').df().to_dict("records"):
                means = UNIT_RANGES.get(row.get("unit"), None) if "difference" not in row else None
                for name, value in row.items():
                    limits = means if name in ("ci_low", "ci_high", "value") else None
                    limits = next((NAMES[key] for key in NAMES if name.startswith(key)), limits)
                    if limits and isinstance(value, float) and not math.isnan(value):
                        assert limits[0] <= value <= limits[1], (view, name, row)
                        checked.add((view, name))
                        at_an_end += name in ("ci_low", "ci_high") and value in limits
    assert ("mean_over_seeds", "ci_high") in checked
    assert len(checked) > 12
    assert at_an_end > 6
