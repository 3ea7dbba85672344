"""Joint tests by sign flips, against flips of every sign written out in plain Python."""

import itertools

import numpy as np
import pytest
from scipy import stats

from lce_core.statistics.contrasts import Contrast, adjust
from lce_core.statistics.sign_flips import Differences, step_down
from tests.support.oracles.error_rates import between


def over(values: np.ndarray, names: list[str] | None = None) -> Differences:
    """Differences of documents that count alike."""
    number = len(values)
    strata = np.zeros(number, dtype=np.int64)
    named = names or [f"document {one}" for one in range(number)]
    return Differences(named, values / number, np.full(number, 1 / number), strata)


def largest_t(values: list[np.ndarray], signs: tuple[int, ...]) -> float:
    return max(abs(stats.ttest_1samp(np.multiply(signs, own), 0.0).statistic) for own in values)


def test_a_family_has_the_p_values_of_all_flips_of_whole_documents():
    rng = np.random.default_rng(3)
    shared = rng.normal(size=8)
    family = [gain + shared + rng.normal(size=8) / 2 for gain in (1.5, 1.2, 0.1)]
    sizes = [abs(stats.ttest_1samp(own, 0.0).statistic) for own in family]
    order = np.argsort(sizes)[::-1]
    expected, before = [0.0] * 3, 0.0
    for place, number in enumerate(order):
        rest = [family[other] for other in order[place:]]
        flips = [largest_t(rest, signs) for signs in itertools.product((-1, 1), repeat=8)]
        before = max(before, float(np.mean(np.array(flips) >= sizes[number] - 1e-9)))
        expected[number] = before
    assert step_down([over(own) for own in family]) == pytest.approx(expected)


def test_tasks_with_few_prompts_are_strata_of_their_own():
    rng = np.random.default_rng(2)
    tasks, sums = np.repeat(np.arange(5), 4), rng.normal(size=20) / 20
    known = Differences(range(20), sums, np.full(20, 1 / 20), tasks)
    within = [np.var(20 * sums[tasks == task], ddof=1) / 4 for task in range(5)]
    assert known.error == pytest.approx(np.sqrt(np.sum(within)) / 5)
    welch = np.sum(within) ** 2 / np.sum(np.square(within) / 3)
    assert known.freedom == pytest.approx(welch)


def test_two_kinds_of_comparison_share_the_level():
    documents = over(np.random.default_rng(5).normal(1, 1, 40))
    joint = Contrast(documents.value, 40, documents.error, differences=documents)
    seeds = Contrast(1.0, 40, seed_error=0.05, seed_freedom=4, num_seeds=5)
    alone, both = adjust([joint])[0], adjust([joint, seeds])
    assert both[0].p_adjusted == pytest.approx(2 * alone.p_adjusted)
    assert both[1].p_adjusted == pytest.approx(2 * seeds.p_value())
    assert both[0].low < alone.low < alone.high < both[0].high


@pytest.mark.slow
def test_unequal_documents_and_tasks_give_false_differences_in_at_most_6_percent():
    rng, hits = np.random.default_rng(7), {"sizes": 0, "tasks": 0}
    runs = 600
    for _ in range(runs):
        weights = rng.lognormal(sigma=1, size=12)
        weights /= weights.sum()
        family = [
            Differences(range(12), weights * rng.standard_t(4, 12), weights, np.zeros(12, np.int64))
            for _ in range(6)
        ]
        hits["sizes"] += min(step_down(family)) <= 0.05
        strata = np.repeat(np.arange(4), 3)
        scale = np.array([0.1, 1, 1, 5])[strata]
        family = [
            Differences(range(12), scale * rng.normal(size=12), np.full(12, 1 / 12), strata)
            for _ in range(6)
        ]
        hits["tasks"] += min(step_down(family)) <= 0.05
    for name, number in hits.items():
        assert number <= 0.06 * runs + 2 * np.sqrt(0.05 * 0.95 * runs), name
    between(hits["sizes"], runs, 0.0, 0.08)
