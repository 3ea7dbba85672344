"""Parts in bfloat16 are merged in float32 and rounded once; the oracle merges in float64."""

import torch

from lce_core.attention.partial import Partial, merge, merge_rows

HALF_ULP = 2**-8
"""Largest relative error of one rounding to bfloat16."""


def part(seed: int) -> Partial:
    generator = torch.Generator().manual_seed(seed)
    output = torch.randn(2, 3, 64, 16, generator=generator).to(torch.bfloat16)
    return Partial(output, 2 * torch.randn(2, 3, 64, generator=generator))


def mixed(first: Partial, second: Partial) -> torch.Tensor:
    weights = torch.stack((first.lse, second.lse)).double().softmax(dim=0)[..., None]
    return weights[0] * first.output.double() + weights[1] * second.output.double()


def test_merged_parts_are_rounded_once():
    first, second = part(0), part(1)
    expected = mixed(first, second)
    error = (merge(first, second).output.double() - expected).abs()
    assert (error <= HALF_ULP * expected.abs() + 1e-6).all()


def test_rows_that_are_merged_in_place_are_rounded_once():
    first, second = part(2), part(3).rows(0, 20)
    expected = mixed(first.rows(30, 50), second)
    merge_rows(first, 30, second)
    error = (first.rows(30, 50).output.double() - expected).abs()
    assert (error <= HALF_ULP * expected.abs() + 1e-6).all()
