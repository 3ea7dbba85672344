"""Strategy: torch's AdamW in fp32 is the oracle; in bf16 the mean over many like weights has to be
its result, where rounding to the nearest would lose every update. The average of weights that
stand still has a closed form. Rounding is given every noise there is, once each, so that a mean is
exact."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.training.optimizer import (
    ExponentialMovingAverage,
    GradientSums,
    RoundedAdamW,
    noise,
    philox,
    rounded,
)

SETTINGS: dict[str, Any] = {"lr": 1e-3, "betas": (0.9, 0.95), "weight_decay": 0.1}
DECAYS = st.floats(0.0, 0.999)
STEPS = st.integers(1, 60)
EXACT = {"rel": 1e-4, "abs": 1e-4}
"""Room for the rounding of 60 updates in fp32, of numbers up to 300."""


def _optimizer(weight: torch.nn.Parameter, **changes: Any) -> RoundedAdamW:
    return RoundedAdamW({"weight": weight}, seed=3, compiled=False, **(SETTINGS | changes))


def test_fp32_weights_are_updated_as_by_torch():
    start = torch.linspace(-1, 1, 60).reshape(12, 5)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    pair = (_optimizer(ours), torch.optim.AdamW([theirs], **SETTINGS))
    for step in range(6):
        gradient = torch.sin(start * 7 + step)
        for weight, optimizer in zip((ours, theirs), pair, strict=True):
            weight.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-6)
    for key, value in pair[1].state[theirs].items():
        torch.testing.assert_close(pair[0].state[ours][key], value)


def test_updates_far_below_the_last_bit_add_up():
    # 200 steps of 1e-5 from 1, below which neighbours in bf16 lie 0.0039 apart.
    weight = torch.nn.Parameter(torch.ones(64, 128, dtype=torch.bfloat16))
    optimizer = _optimizer(weight, lr=1e-5, weight_decay=0.0)
    for _ in range(200):
        weight.grad = torch.ones_like(weight)
        optimizer.step()
    found = weight.detach().double()
    assert found.mean().item() == pytest.approx(1 - 2e-3, abs=4 * 0.0039 / 2 / 90)
    assert {tensor.dtype for tensor in optimizer.state[weight].values()} == {
        torch.float32,
        torch.bfloat16,
    }


def test_the_second_moment_falls_though_its_decay_is_below_half_a_bit():
    weight = torch.nn.Parameter(torch.zeros(64, 128, dtype=torch.bfloat16))
    optimizer = _optimizer(weight, betas=(0.9, 0.999))
    for step in range(300):
        weight.grad = torch.full_like(weight, float(step == 0))
        optimizer.step()
    found = optimizer.state[weight]["exp_avg_sq"].double().mean().item()
    assert found == pytest.approx(0.001 * 0.999**299, rel=0.01)


def test_gradients_are_clipped_as_by_torch():
    values = torch.linspace(-3, 3, 30).reshape(6, 5)
    ours, theirs = (torch.nn.Parameter(torch.ones(6, 5)) for _ in range(2))
    ours.grad, theirs.grad = values.clone(), values.clone()
    optimizer, stock = _optimizer(ours), torch.optim.AdamW([theirs], **SETTINGS)
    norm = optimizer.clip(0.5, lambda squares: squares)
    assert norm == pytest.approx(float(torch.nn.utils.clip_grad_norm_([theirs], 0.5)))
    optimizer.step()
    stock.step()
    moments = [found["exp_avg"] for found in (optimizer.state[ours], stock.state[theirs])]
    torch.testing.assert_close(*moments)


def test_sums_of_many_gradients_do_not_stand_still():
    summed, stock = (torch.nn.Parameter(torch.zeros(64, 64, dtype=torch.bfloat16)) for _ in "ab")
    sums = GradientSums({"weight": summed}, seed=5, compiled=False)
    sums.begin(0)
    for _ in range(600):
        summed.sum().backward()
        assert summed.grad is None
        stock.sum().backward()
    sums.give_back()
    assert stock.grad is not None
    assert stock.grad.unique().tolist() == [256]
    assert summed.grad is not None
    assert summed.grad.double().mean().item() == pytest.approx(600, abs=1)
    sums.begin(1)
    summed.grad = None
    summed.sum().backward()
    sums.give_back()
    assert summed.grad.unique().tolist() == [1]


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


EVERY = torch.arange(1 << 16, dtype=torch.int32)
LARGEST = float(torch.finfo(torch.bfloat16).max)


@given(st.floats(-LARGEST, LARGEST, width=32))
def test_rounding_is_unbiased_for_every_number(value):
    found = rounded(torch.full(EVERY.shape, value), EVERY).double()
    assert found.mean().item() == value
    assert found.unique().numel() <= 2


@given(st.floats(width=16) | st.sampled_from([math.inf, -math.inf, math.nan]))
def test_what_bf16_has_stays(value):
    held = torch.tensor(value).to(torch.bfloat16)
    for drawn in (0, 1, 65535):
        found = rounded(held.float().reshape(1), torch.tensor([drawn], dtype=torch.int32))
        assert torch.equal(found[0], held) or (math.isnan(value) and found.isnan().all())


def test_every_pattern_of_not_a_number_stays_one():
    patterns = torch.tensor([0x7FC00000, 0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32)
    values = patterns.view(torch.float32)
    assert rounded(values, torch.full((4,), 65535, dtype=torch.int32)).isnan().all()


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ([0] * 4, [0] * 2, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
        ([0xFFFFFFFF] * 4, [0xFFFFFFFF] * 2, [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]),
        (
            [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344],
            [0xA4093822, 0x299F31D0],
            [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1],
        ),
    ],
)
def test_philox_has_the_known_answers_of_random123(counter, key, words):
    found = philox(torch.tensor(counter).unbind(), torch.tensor(key).unbind())
    assert [int(word) for word in found] == words


@given(start=st.integers(0, 1 << 34), size=st.integers(1, 40), cut=st.integers(0, 40))
def test_the_noise_of_an_element_depends_on_its_index_alone(start, size, cut):
    cut = min(cut, size)
    rest = [7, 1, 5, 9]
    whole = noise(torch.tensor([start, *rest]), size)
    parts = zip(
        noise(torch.tensor([start, *rest]), cut),
        noise(torch.tensor([start + cut, *rest]), size - cut),
        strict=True,
    )
    assert all(map(torch.equal, whole, map(torch.cat, parts)))


def test_noise_is_uniform_and_changes_with_every_word():
    words = torch.tensor([0, 3, 1, 5, 9])
    # Adding 2^32 to the index of the first element changes its upper word only.
    changes = torch.diag(torch.tensor([1 << 32, 1, 1, 1, 1]))
    drawn = [each for other in (words, *(words + changes)) for each in noise(other, 1 << 16)]
    for number, each in enumerate(drawn):
        assert each.min() >= 0
        assert each.max() < 1 << 16
        # The mean of 65,536 draws lies within four of its standard deviations, 74 each.
        assert abs(each.double().mean().item() - 32767.5) < 4 * 74
        # Independent draws are equal once in 65,536.
        assert all((each == other).sum() < 12 for other in drawn[:number])
