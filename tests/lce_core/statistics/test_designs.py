"""Detectable differences of designs: agreement with tests of one source, and simulated studies."""

import math

import numpy as np
import pytest
from scipy import stats

from lce_core.statistics.contrasts import Contrast, seed_variances
from lce_core.statistics.designs import Design, detectable_difference
from lce_core.statistics.power import detectable_effect, detectable_share, detectable_tau
from tests.support.oracles.error_rates import between


def test_without_training_seeds_only_prompts_count():
    frozen = Design(20, is_share=False, seeded=False, num_trained=0)
    assert detectable_difference(frozen, 5, 2, 0.05) == detectable_effect(40)
    own = Design(20, is_share=True, seeded=True, num_trained=0)
    assert detectable_difference(own, 3, 2, 0.01) == detectable_share(120, alpha=0.01)
    trained = Design(20, is_share=True, seeded=True, num_trained=4)
    assert detectable_difference(trained, 1, 2, 0.01) == detectable_share(40, alpha=0.01)
    assert detectable_difference(Design(0, True, True, 0), 3, 2, 0.01) is None, "unknown number"


@pytest.mark.slow
@pytest.mark.parametrize("seeded", [False, True])
@pytest.mark.parametrize("times", [1, 4])
def test_four_of_five_simulated_studies_find_the_difference(seeded, times):
    rng, runs, num_seeds, methods, planned = np.random.default_rng(0), 600, 4, 5, 30
    design = Design(planned, is_share=False, seeded=seeded, num_trained=methods)
    gap = detectable_difference(design, num_seeds, times, 0.05, 1.0)
    number, found = planned * times, 0
    for _ in range(runs):
        # A difference has the standard deviation 1 over prompts, and 1 / sqrt(planned) over seeds.
        of_seeds = rng.normal(0, math.sqrt(0.5 / planned), (num_seeds, methods))
        prompts = rng.normal(0, math.sqrt(0.5), (num_seeds if seeded else 1, number, methods))
        values = of_seeds + prompts.mean(axis=1)
        values[:, 0] += gap
        between_seeds = seed_variances(values).paired
        drawn = prompts[0, :, 0] - prompts[0, :, 1]
        found += Contrast(
            float((values[:, 0] - values[:, 1]).mean()),
            number,
            cluster_error=0.0 if seeded else float(stats.sem(drawn)),
            seed_error=math.sqrt((between_seeds[0] + between_seeds[1]) / num_seeds),
            seed_freedom=(methods - 1) * (num_seeds - 1),
        ).p_value() <= 0.05  # fmt: skip
    between(found, runs, 0.7, 0.9)


@pytest.mark.slow
@pytest.mark.parametrize("num_methods", [9, 40])
def test_kendalls_test_finds_the_detectable_tau_in_four_of_five_studies(num_methods):
    rng, runs = np.random.default_rng(0), 1000
    # A bivariate normal distribution with the correlation r has tau = 2 / pi * arcsin(r).
    correlation = math.sin(math.pi / 2 * detectable_tau(num_methods))
    covariance = [[1.0, correlation], [correlation, 1.0]]
    drawn = rng.multivariate_normal([0, 0], covariance, size=(runs, num_methods))
    found = sum(stats.kendalltau(*one.T).pvalue <= 0.05 for one in drawn)
    between(found, runs, 0.7, 0.9)
    assert detectable_tau(4) is None
