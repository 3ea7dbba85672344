"""Strategy: every noise there is, once each, so that a mean is exact and no matter of luck."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.training.rounding import noise, philox, rounded

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
