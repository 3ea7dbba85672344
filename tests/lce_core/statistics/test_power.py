"""Power: sums over all outcomes, printed values, the approximation of others, and simulation."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics.contrasts import Contrast
from lce_core.statistics.mcnemar import exact_mcnemar
from lce_core.statistics.power import (
    detectable_effect,
    detectable_share,
    mcnemar_power,
    mean_power,
)
from tests.support.oracles.error_rates import between


@settings(max_examples=30)
@given(st.integers(1, 9), st.floats(0.05, 0.95), st.floats(-1, 1), st.floats(0.01, 0.5))
def test_the_power_of_mcnemar_is_the_chance_of_all_outcomes_that_it_calls_a_difference(
    num_prompts: int, discordance: float, part: float, alpha: float
) -> None:
    difference = part * discordance
    wins, losses = (discordance + difference) / 2, (discordance - difference) / 2
    expected = sum(
        math.comb(num_prompts, a) * math.comb(num_prompts - a, b)
        * wins**a * losses**b * (1 - discordance) ** (num_prompts - a - b)
        for a in range(num_prompts + 1)
        for b in range(num_prompts + 1 - a)
        # A p-value within rounding of alpha may fall on either side.
        if exact_mcnemar(a, b) <= alpha
    )  # fmt: skip
    close = {2 * stats.binom.cdf(k, n, 0.5) for n in range(num_prompts + 1) for k in range(n + 1)}
    if min(abs(one - alpha) for one in close) > 1e-9:
        found = mcnemar_power(num_prompts, difference, discordance, alpha=alpha)
        assert found == pytest.approx(expected, abs=1e-7)


@pytest.mark.slow
def test_the_difference_that_can_be_seen_is_seen_in_four_of_five_simulated_studies() -> None:
    rng, runs = np.random.default_rng(0), 2000
    for num_prompts, discordance in ((60, 0.5), (500, 0.2)):
        gap = detectable_share(num_prompts, discordance)
        assert gap is not None
        chances = [(discordance + gap) / 2, (discordance - gap) / 2, 1 - discordance]
        outcomes = rng.multinomial(num_prompts, chances, size=runs)
        seen = sum(exact_mcnemar(int(a), int(b)) <= 0.05 for a, b, _ in outcomes)
        between(seen, runs, 0.8, 0.8)
    effect = detectable_effect(12)
    assert effect is not None
    differences = rng.normal(effect, 1.0, size=(runs, 12))
    seen = int((stats.ttest_1samp(differences, 0, axis=1).pvalue <= 0.05).sum())
    between(seen, runs, 0.8, 0.8)


@pytest.mark.parametrize(("num_prompts", "discordance"), [(500, 0.5), (1300, 0.2), (6500, 0.5)])
def test_many_prompts_see_about_what_connor_says(num_prompts: int, discordance: float) -> None:
    # Connor 1987, equation for n of the unconditional normal approximation.
    gap = detectable_share(num_prompts, discordance)
    assert gap is not None
    root = 1.959964 * math.sqrt(discordance) + 0.841621 * math.sqrt(discordance - gap**2)
    assert num_prompts == pytest.approx((root / gap) ** 2, rel=0.06)
    assert num_prompts > (root / gap) ** 2


def test_the_paired_t_test_has_the_power_that_is_printed() -> None:
    # G*Power 3.1 manual: means, difference from constant or matched pairs, d 0.5, n 34.
    assert mean_power(34, 0.5) == pytest.approx(0.8077775, abs=1e-6)
    assert detectable_effect(34, power=0.8077775) == pytest.approx(0.5, abs=1e-5)


@pytest.mark.parametrize("num_clusters", [2, 3, 6, 12, 34, 201])
@pytest.mark.parametrize("shift", [0.1, 1.0, 3.0, 5.0])
@pytest.mark.parametrize("alpha", [0.05, 0.005])
def test_the_t_test_has_the_power_of_the_noncentral_t(num_clusters, shift, alpha) -> None:
    critical = stats.t.isf(alpha / 2, num_clusters - 1)
    expected = stats.nct.sf(critical, num_clusters - 1, shift)
    expected += stats.nct.cdf(-critical, num_clusters - 1, shift)
    found = mean_power(num_clusters, shift / math.sqrt(num_clusters), alpha=alpha)
    assert found == pytest.approx(expected, abs=2e-6)


@settings(max_examples=8)
@given(st.integers(12, 400), st.floats(0.1, 0.9), st.floats(0.001, 0.04), st.integers(0, 100))
def test_more_prompts_of_greater_effect_see_more(number, discordance, alpha, more) -> None:
    one, other = detectable_effect(number), detectable_effect(number + more)
    assert other <= one
    assert detectable_effect(number, alpha=alpha) >= one
    gap, strict = (
        detectable_share(number, discordance),
        detectable_share(number, discordance, alpha=alpha),
    )
    if gap is None:
        assert strict is None
        assert mcnemar_power(number, discordance, discordance) < 0.8
    else:
        assert 0 < gap <= discordance
        assert strict is None or strict >= gap - 1e-6
        assert mcnemar_power(number, gap, discordance) == pytest.approx(0.8, abs=1e-3)
        assert mcnemar_power(number, -gap, discordance) == pytest.approx(0.8, abs=1e-3)


@pytest.mark.parametrize("alpha", [0.05, 0.05 / 26])
@pytest.mark.parametrize(("wins", "losses", "number"), [(20, 10, 60), (10, 26, 180), (3, 6, 180)])
def test_compared_fractions_could_show_about_what_mcnemars_test_can(
    wins: int, losses: int, number: int, alpha: float
) -> None:
    seen = Contrast((wins - losses) / number, number, discordant=(wins, losses)).detectable(alpha)
    # If methods disagree on fewer prompts than that, on as many as they differ by.
    exact = detectable_share(number, max((wins + losses) / number, seen), alpha=alpha)
    assert seen == pytest.approx(exact, rel=0.15, abs=0.01)


def test_agreement_on_every_prompt_is_not_taken_for_certainty() -> None:
    seen = Contrast(0.0, 100, discordant=(0, 0)).detectable()
    assert mcnemar_power(100, seen, seen) == pytest.approx(0.8, abs=0.05)
    assert Contrast(0.0, 100).detectable() is None


def test_compared_means_could_show_their_effect_times_their_spread() -> None:
    effect = detectable_effect(30, alpha=0.01)
    seen = Contrast(0.5, 30, cluster_error=0.2).detectable(0.01)
    assert seen == pytest.approx(effect * 0.2 * math.sqrt(30))
    assert Contrast(0.5, 7, cluster_error=0.2).detectable(0.01) is None


def test_five_prompts_can_show_no_difference_at_all() -> None:
    # Five of five has a p-value of 0.0625.
    assert mcnemar_power(5, 0.9, 0.9) == pytest.approx(0.0, abs=1e-9)
    assert detectable_share(5, 0.9) is None


@pytest.mark.parametrize(("alpha", "fewest"), [(0.05, 6), (0.01, 8)])
def test_too_few_documents_can_show_no_difference_either(alpha: float, fewest: int) -> None:
    assert detectable_effect(fewest - 1, alpha=alpha) is None
    assert detectable_effect(fewest, alpha=alpha) is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda: detectable_share(0),
        lambda: detectable_share(10, 1.5),
        lambda: detectable_share(10, power=80),
        lambda: detectable_effect(1),
        lambda: mean_power(10, 0.5, alpha=5),
        lambda: mcnemar_power(10, 0.6, 0.5),
    ],
)
def test_studies_that_cannot_be_are_refused(call) -> None:
    with pytest.raises(AssertionError):
        call()
