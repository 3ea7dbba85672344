"""Strategy: every noise there is, once each, so that a mean is exact and no matter of luck."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from lce_core.training.states.rounding import blocks_of, noise, rounded

EVERY = torch.arange(1 << 16, dtype=torch.int32)
LARGEST = float(torch.finfo(torch.bfloat16).max)


@given(st.floats(-LARGEST, LARGEST, width=32))
def test_rounding_is_unbiased_for_every_number(value: float) -> None:
    found = rounded(torch.full(EVERY.shape, value), EVERY).double()
    assert found.mean().item() == value
    assert found.unique().numel() <= 2


@given(st.floats(width=16) | st.sampled_from([math.inf, -math.inf, math.nan]))
def test_what_bf16_has_stays(value: float) -> None:
    held = torch.tensor(value).to(torch.bfloat16)
    for drawn in (0, 1, 65535):
        found = rounded(held.float().reshape(1), torch.tensor([drawn], dtype=torch.int32))
        assert torch.equal(found[0], held) or (math.isnan(value) and found.isnan().all())


def test_every_pattern_of_not_a_number_stays_one() -> None:
    patterns = torch.tensor([0x7FC00000, 0x7FFFFFFF, 0x7F800001, -1], dtype=torch.int32)
    values = patterns.view(torch.float32)
    assert rounded(values, torch.full((4,), 65535, dtype=torch.int32)).isnan().all()


@given(
    rows=st.integers(1, 40),
    width=st.integers(0, 5),
    size=st.integers(1, 60),
    cuts=st.lists(st.integers(0, 40), max_size=4),
)
def test_shares_of_rows_get_the_noise_of_the_whole(
    rows: int, width: int, size: int, cuts: list[int]
) -> None:
    shape = (rows, width) if width else (rows,)
    places = sorted({0, rows, *(cut for cut in cuts if cut < rows)})

    def drawn(held: slice) -> torch.Tensor:
        found = torch.zeros(2, held.stop - held.start, *shape[1:], dtype=torch.int32)
        for block in blocks_of(shape, held, size):
            found[:, block.held] = noise([7, 1], block, 2, torch.device("cpu"))
        return found

    shares = [drawn(slice(*ends)) for ends in pairwise(places)]
    assert torch.equal(torch.cat(shares, dim=1), drawn(slice(0, rows)))


def test_noise_follows_from_its_key_and_block_and_is_uniform() -> None:
    first, second = blocks_of((2, 1 << 16), slice(0, 2), 1 << 16)
    cpu: Any = torch.device("cpu")
    one, other, later = (
        noise([1], first, 1, cpu),
        noise([2], first, 1, cpu),
        noise([1], second, 1, cpu),
    )
    assert torch.equal(one, noise([1], first, 1, cpu))
    assert not torch.equal(one, other)
    assert not torch.equal(one, later)
    assert one.min() >= 0
    assert one.max() < 1 << 16
    # The mean of 65,536 draws lies within four of its standard deviations, 74 each.
    assert abs(one.double().mean().item() - 32767.5) < 4 * 74
