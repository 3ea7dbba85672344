"""Stochastic rounding to bf16, with noise that follows from a seed and the place in the tensor.

A number between two neighbours in bf16 becomes the upper one with the probability of its distance
from the lower one. Its mean is then the number itself, and updates far below the last bit of a
weight still add up; rounded to the nearest, they would be lost.

Noise is drawn in blocks of rows of the whole tensor, each from a generator of its own. A process
that holds some rows draws the same noise for them as one that holds all, so a run does not depend
on how many share it, nor on where it was interrupted.

Source: Zamirai et al. 2020, arXiv:2010.06192 (stochastic rounding of weight updates).
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lce_core.training.sharding import local, local_rows

_BLOCK = 1 << 22
"""Numbers of a block, about; temporaries in fp32 are as large."""


@dataclass(frozen=True)
class Block:
    """Some rows that this process holds of a tensor."""

    number: int
    """Which block of the whole tensor they lie in."""
    held: slice
    """Their places among the rows that this process holds."""
    inside: slice
    """Their places in the block."""
    shape: tuple[int, ...]
    """Of the whole block."""


def blocks(tensor: Tensor) -> Iterator[Block]:
    """The rows that this process holds of a tensor of at least one dimension, block by block."""
    return blocks_of(tuple(tensor.shape), local_rows(tensor))


def blocks_of(shape: tuple[int, ...], held: slice, size: int = _BLOCK) -> Iterator[Block]:
    """Rows `held` of a tensor, in blocks of about `size` numbers that do not depend on `held`."""
    rows = shape[0]
    height = max(1, size // max(1, math.prod(shape[1:])))
    for number in range(held.start // height, -(-held.stop // height)):
        first, end = number * height, min((number + 1) * height, rows)
        start, stop = max(first, held.start), min(end, held.stop)
        if start < stop:
            yield Block(
                number,
                slice(start - held.start, stop - held.start),
                slice(start - first, stop - first),
                (end - first, *shape[1:]),
            )


def noise(key: Sequence[int], block: Block, count: int, device: torch.device) -> Tensor:
    """Uniform integers in 0..65535 for the rows of a block, (count, rows, ...) int32.

    Args:
      key: what they follow from, with the block's number; `name_key` makes numbers of names.
      block: whose rows.
      count: numbers for each place.
      device: where they are drawn; each kind of device draws its own.
    """
    mixed = np.random.SeedSequence([*key, block.number]).generate_state(1, np.uint64)
    generator = torch.Generator(device).manual_seed(int(mixed[0]))
    drawn = torch.randint(
        1 << 16, (count, *block.shape), generator=generator, dtype=torch.int32, device=device
    )
    return drawn[:, block.inside]


def name_key(name: str) -> int:
    """A number for a parameter's name, the same everywhere."""
    return zlib.crc32(name.encode())


def rounded(values: Tensor, drawn: Tensor) -> Tensor:
    """Values in bf16, each one of its two neighbours; what bf16 has, infinities and NaN stay.

    Args:
      values: fp32, any shape; changed.
      drawn: int32 in 0..65535, of the same shape.
    """
    # bf16 is the upper half of fp32. A carry out of the lower half is as likely as that is large.
    finite = values.isfinite()
    bits = values.view(torch.int32)
    bits.add_(torch.where(finite, drawn, 0)).bitwise_and_(torch.where(finite, -1 << 16, -1))
    return values.to(torch.bfloat16)


def write(target: Tensor, values: Tensor, drawn: Tensor) -> None:
    """Writes fp32 values into a tensor: at random neighbours where it is bf16, else as they are."""
    target.copy_(rounded(values, drawn) if target.dtype == torch.bfloat16 else values)


def held(tensor: Tensor) -> Tensor:
    """This process's rows of a tensor, sharing its memory."""
    return local(tensor.detach())
