"""Values that have no statistic are refused before they become a number in a report."""

from math import inf, nan

import pytest

from lce_core.statistics.clustered import clustered_mean
from lce_core.statistics.effective_length import effective_length
from lce_core.statistics.estimates import wilson
from lce_core.statistics.power import detectable_share, mcnemar_power
from lce_core.statistics.rank_agreement import perplexity_agreement
from lce_core.statistics.seeds import mean_over_seeds
from lce_core.statistics.significance import holm


@pytest.mark.parametrize(
    "statistic",
    [
        lambda: wilson(3, 2),
        lambda: clustered_mean([1.0], ["a", "b"]),
        lambda: clustered_mean([1.0, inf]),
        lambda: effective_length({4096: [nan]}, 0.5),
        lambda: holm([nan]),
        lambda: detectable_share(10, power=80),
        lambda: mcnemar_power(10, 0.6, 0.5),
        lambda: perplexity_agreement([1, 2], [1], [True, True]),
        lambda: mean_over_seeds([[1.0, 2.0], [1.0]], same_prompts=True),
    ],
)
def test_values_without_a_statistic_are_refused(statistic):
    with pytest.raises(AssertionError):
        statistic()
