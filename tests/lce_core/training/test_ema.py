"""The average against its closed form, for weights that stand still."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.training.ema import ExponentialMovingAverage

DECAYS = st.floats(0.0, 0.999)
STEPS = st.integers(1, 60)
EXACT = {"rel": 1e-4, "abs": 1e-4}
"""Room for the rounding of 60 updates in fp32, of numbers up to 300."""


@given(DECAYS, STEPS)
def test_the_distance_to_weights_that_stand_still_shrinks_by_the_decay(decay, steps):
    weights = {"a": torch.tensor([0.0, 100.0])}
    average = ExponentialMovingAverage(weights, decay)
    weights["a"].copy_(torch.tensor([100.0, 300.0]))
    for _ in range(steps):
        average.update()
    left = decay**steps
    expected = [100 - 100 * left, 300 - 200 * left]
    assert average.tensors["a"].tolist() == pytest.approx(expected, **EXACT)


def test_one_update_of_half_a_percent_moves_half_a_percent_of_the_way():
    weights = {"a": torch.zeros(1, dtype=torch.bfloat16)}
    average = ExponentialMovingAverage(weights, 0.995)
    weights["a"].fill_(1000)
    average.update()
    assert average.tensors["a"].item() == pytest.approx(5.0, rel=1e-5)
    average.apply()
    assert weights["a"].item() == 5.0
