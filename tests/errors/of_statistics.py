"""Provocations of comparisons and their uncertainty."""

from __future__ import annotations

import numpy as np

from lce_core.statistics.clustered import clustered_mean
from lce_core.statistics.effective_length import effective_length
from lce_core.statistics.estimates import bootstrap_mean, wilson
from lce_core.statistics.holm import holm
from lce_core.statistics.pair_tests import exact_mcnemar
from lce_core.statistics.paired import intervals, paired_difference
from lce_core.statistics.power import detectable_effect, mcnemar_power
from lce_core.statistics.seeds import mean_over_seeds
from tests.support.errors.provocations import Place, Table

PROVOCATIONS = Table()
provokes = PROVOCATIONS


@provokes("lce_core/statistics/_checks.py", "all finite")
def _(_: Place) -> None:
    holm([float("nan")])


@provokes("lce_core/statistics/_checks.py", "an entry of each")
def _(_: Place) -> None:
    paired_difference([1.0, 2.0], [1.0])


@provokes("lce_core/statistics/holm.py", "p-values, 0 to 1")
def _(_: Place) -> None:
    holm([2.0])


@provokes("lce_core/statistics/pair_tests.py", "numbers of prompts")
def _(_: Place) -> None:
    exact_mcnemar(-1, 3)


@provokes("lce_core/statistics/clustered.py", "between 0 and 1")
def _(_: Place) -> None:
    clustered_mean([1.0, 2.0], level=95)


@provokes("lce_core/statistics/paired.py", "the cluster of each row")
def _(_: Place) -> None:
    intervals(np.zeros((2, 1)), np.zeros(3, dtype=np.int64))


@provokes("lce_core/statistics/seeds.py", "of at least one")
def _(_: Place) -> None:
    mean_over_seeds([], same_prompts=False)


@provokes("lce_core/statistics/seeds.py", "of every prompt in every seed")
def _(_: Place) -> None:
    mean_over_seeds([[1.0], [1.0, 2.0]], same_prompts=True)


@provokes("lce_core/statistics/effective_length.py", "one length or more")
def _(_: Place) -> None:
    effective_length({}, 0.5)


@provokes("lce_core/statistics/power.py", "these prompts can make")
def _(_: Place) -> None:
    mcnemar_power(100, 0.6, 0.5)


@provokes("lce_core/statistics/power.py", "at least one comparison")
def _(_: Place) -> None:
    detectable_effect(1)


@provokes("lce_core/statistics/estimates.py", "all finite")
def _(_: Place) -> None:
    bootstrap_mean([])


@provokes("lce_core/statistics/estimates.py", "right of")
def _(_: Place) -> None:
    wilson(3, 2)
