"""Power of designs: agreement with tests of one source, and simulated studies."""

import math

import numpy as np
import pytest

from lce_core.statistics.contrasts import Contrast, adjust
from lce_core.statistics.designs import Design, detectable_difference
from lce_core.statistics.power import detectable_effect, detectable_share, mcnemar_power
from lce_core.statistics.sign_flips import Differences
from tests.support.oracles.error_rates import between


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
