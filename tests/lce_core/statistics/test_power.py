"""Power: sums over all outcomes, printed values, the approximation of others, and simulation.

Power of designs: agreement with tests of one source, and simulated studies.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from lce_core.statistics.contrasts import Contrast, adjust, skewness
from lce_core.statistics.designs import Design, detectable_difference
from lce_core.statistics.power import (
    detectable_effect,
    detectable_share,
    exact_mcnemar,
    mcnemar_power,
    mean_power,
)
from lce_core.statistics.sign_flips import Differences
from tests.support.oracles.error_rates import between


@given(st.integers(1, 9), st.floats(0.05, 0.95), st.floats(-1, 1), st.floats(0.01, 0.5))
def test_the_power_of_mcnemar_is_the_chance_of_all_outcomes_that_it_calls_a_difference(
    num_prompts, discordance, part, alpha
):
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


@pytest.mark.parametrize(("num_prompts", "discordance"), [(500, 0.5), (1300, 0.2)])
def test_many_prompts_see_about_what_connor_says(num_prompts: int, discordance: float) -> None:
    # Connor 1987, equation for n of the unconditional normal approximation.
    gap = detectable_share(num_prompts, discordance)
    root = 1.959964 * math.sqrt(discordance) + 0.841621 * math.sqrt(discordance - gap**2)
    assert num_prompts == pytest.approx((root / gap) ** 2, rel=0.06)
    assert num_prompts > (root / gap) ** 2


def test_the_paired_t_test_has_the_power_that_is_printed() -> None:
    # G*Power 3.1 manual: means, difference from constant or matched pairs, d 0.5, n 34.
    assert mean_power(34, 0.5) == pytest.approx(0.8077775, abs=1e-6)
    assert mean_power(34, detectable_effect(34)) == pytest.approx(0.8, abs=1e-6)


@pytest.mark.parametrize("num_clusters", [2, 12, 201])
@pytest.mark.parametrize(("shift", "alpha"), [(0.1, 0.05), (5.0, 0.05), (3.0, 0.005)])
def test_the_t_test_has_the_power_of_the_noncentral_t(num_clusters, shift, alpha):
    critical = stats.t.isf(alpha / 2, num_clusters - 1)
    expected = stats.nct.sf(critical, num_clusters - 1, shift)
    expected += stats.nct.cdf(-critical, num_clusters - 1, shift)
    found = mean_power(num_clusters, shift / math.sqrt(num_clusters), alpha=alpha)
    assert found == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize(("wins", "losses", "number"), [(20, 10, 60), (3, 6, 180)])
def test_compared_fractions_could_show_about_what_mcnemars_test_can(wins, losses, number):
    alpha = 0.05 / 26
    seen = Contrast((wins - losses) / number, number, discordant=(wins, losses)).detectable(alpha)
    # If methods disagree on fewer prompts than that, on as many as they differ by.
    exact = detectable_share(number, max((wins + losses) / number, seen), alpha=alpha)
    assert seen == pytest.approx(exact, rel=0.15, abs=0.01)


def test_agreement_on_every_prompt_is_not_taken_for_certainty():
    seen = Contrast(0.0, 100, discordant=(0, 0)).detectable()
    assert mcnemar_power(100, seen, seen) == pytest.approx(0.8, abs=0.05)
    assert Contrast(0.0, 100).detectable() is None


def test_an_undecided_comparison_needs_the_documents_that_are_printed() -> None:
    # G*Power 3.1 manual, as above: d 0.5 needs 34 pairs.
    for number in (6, 12):
        assert Contrast(0.5, number, cluster_error=1 / math.sqrt(number)).num_needed() == 34
    assert Contrast(0.0, 12, cluster_error=0.3).num_needed() is None
    assert Contrast(1e-3, 12, cluster_error=0.3).num_needed() is None, "more than 10,000"
    assert Contrast(0.5, 1).num_needed() is None, "one document has no spread"
    assert Contrast(0.5, 4).num_needed() == 6, "the first number that can be significant"
    assert (
        Contrast(0.5, 4, seed_error=1.0, seed_freedom=2, num_seeds=3, is_crossed=True).num_needed()
        is None
    )


@pytest.mark.slow
def test_studies_of_the_number_that_is_needed_decide_in_four_of_five():
    rng, runs, alpha = np.random.default_rng(1), 1000, 0.005

    def decided(found: list[Contrast], low: float = -math.inf, high: float = math.inf) -> int:
        return sum(
            one.p_value() <= alpha if math.isinf(low) else low < bounds[0] and bounds[1] < high
            for one in found
            if (bounds := one.interval(alpha)) is not None
        )

    def of_documents(number: int, mean: float) -> list[Contrast]:
        drawn = rng.normal(mean, 1.0, size=(runs, number))
        return [Contrast(g.mean(), number, stats.sem(g), skewness(g)) for g in drawn]

    pilot = Contrast(0.4, 10, cluster_error=1 / math.sqrt(10))
    needed = pilot.num_needed(alpha)
    between(decided(of_documents(needed, 0.4)), runs, 0.7, 0.9)
    # Not worse than 0.2 below, and equal within 0.5 or 0.8.
    for low, high in ((-0.2, math.inf), (-0.5, 0.5), (-0.8, 0.8)):
        needed = pilot.num_needed(alpha, [one for one in (low, high) if not math.isinf(one)])
        between(decided(of_documents(needed, 0.4), low, high), runs, 0.7, 0.9)

    share = np.array([0.3, 0.15, 0.55])
    wins, losses = 12, 6
    needed = Contrast(0.15, 40, discordant=(wins, losses)).num_needed(alpha)
    drawn = rng.multinomial(needed, share, size=runs)
    found = [Contrast((a - b) / needed, needed, discordant=(int(a), int(b))) for a, b, _ in drawn]
    between(decided(found), runs, 0.7, 0.9)

    # Two methods whose runs differ by 1, on 60 shared prompts that add a standard error of 0.2.
    pilot = Contrast(1.5, 60, 0.2, 0.0, math.sqrt(1 / 3), 2, num_seeds=3, is_crossed=True)
    needed = pilot.num_needed(alpha)
    found = [
        Contrast(
            gap, 60, 0.2 * math.sqrt(rng.chisquare(59) / 59), 0.0,
            math.sqrt(rng.chisquare(needed - 1) / (needed - 1) / needed), needed - 1,
        )
        for gap in 1.5 + rng.normal(0.0, math.hypot(0.2, math.sqrt(1 / needed)), runs)
    ]  # fmt: skip
    between(decided(found), runs, 0.7, 0.9)
    crossed = Contrast(0.5, 60, 0.3, 0.0, 0.2, 12, num_seeds=3, is_crossed=True)
    assert crossed.num_needed(alpha) is None, "no number of seeds replaces prompts"


def test_without_training_seeds_only_prompts_count():
    frozen = Design(20, 20, is_share=False, seeded=False, is_trained=False)
    assert detectable_difference(frozen, 5, 2, 0.05) == detectable_effect(40)
    own = Design(20, 20, is_share=True, seeded=True, is_trained=False)
    assert detectable_difference(own, 3, 2, 0.01) == detectable_share(120, alpha=0.01)
    assert own.probability(3, 2, 0.2, 0.01) == mcnemar_power(120, 0.2, alpha=0.01)
    trained = Design(20, 20, is_share=True, seeded=True, is_trained=True)
    assert detectable_difference(trained, 1, 2, 0.01) == detectable_share(40, alpha=0.01)
    assert detectable_difference(Design(0, 0, True, True, False), 3, 2, 0.01) is None


@pytest.mark.parametrize(
    ("number", "seeded", "is_trained", "num_seeds", "level", "needed"),
    [
        (5, False, False, 3, 0.05, 6),  # five documents, whatever the seeds
        (6, False, False, 1, 0.05, 0),
        (6, False, False, 1, 0.01, 8),  # 2^-7 is the first p-value below a fifth of 0.05
        (5, True, False, 2, 0.05, 0),  # ten prompts
        (5, False, True, 8, 0.05, 6),  # all seeds read the same five documents
        (5, True, True, 8, 0.05, 0),  # seeds with prompts of their own
        (5, True, True, 1, 0.05, 6),
    ],
)
def test_a_test_needs_documents(number, seeded, is_trained, num_seeds, level, needed):
    design = Design(number, number, False, seeded, is_trained)
    assert design.missing(num_seeds, 1, level) == needed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("num_seeds", "number", "seeded", "size"),
    [(3, 30, False, 1), (3, 30, True, 1), (4, 120, False, 1), (5, 30, True, 4), (1, 6, False, 1),
     (1, 12, False, 3)],
)  # fmt: skip
def test_simulated_studies_find_the_difference_as_often_as_promised(
    num_seeds, number, seeded, size
):
    """`size` methods are compared with one other; the first differs, as do the rest."""
    rng, runs = np.random.default_rng(0), 500
    design = Design(number, number, is_share=False, seeded=seeded, is_trained=num_seeds > 1)
    gap, found = detectable_difference(design, num_seeds, 1, 0.05 / size, 1.0), 0
    promised = design.probability(num_seeds, 1, gap, 0.05 / size)
    for _ in range(runs):
        drawn = rng.normal(0, math.sqrt(0.5), (num_seeds if seeded else 1, number, size + 1))
        of_seeds = rng.normal(0, math.sqrt(0.5 / number), (num_seeds, size + 1))
        gaps = (of_seeds + drawn.mean(axis=1))[:, :1] - (of_seeds + drawn.mean(axis=1))[:, 1:] + gap
        documents = drawn[0, :, :1] - drawn[0, :, 1:] + gap
        family = [
            Contrast(
                float(gaps[:, it].mean()),
                number,
                0.0 if seeded else float(documents[:, it].std(ddof=1) / math.sqrt(number)),
                seed_error=float(gaps[:, it].std(ddof=1) / math.sqrt(num_seeds)),
                seed_freedom=num_seeds - 1,
                num_seeds=num_seeds,
                is_crossed=not seeded,
            )
            if num_seeds > 1
            else Contrast(
                float(documents[:, it].mean()),
                number,
                differences=Differences(
                    range(number),
                    documents[:, it] / number,
                    np.full(number, 1 / number),
                    np.zeros(number, dtype=np.int64),
                ),
            )
            for it in range(size)
        ]
        found += adjust(family)[0].p_adjusted <= 0.05
    # Other comparisons of the entry that differ as much make this one easier to find.
    between(found, runs, promised - 0.08, promised + (0.15 if size > 1 else 0.08))
