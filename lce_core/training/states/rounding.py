"""Stochastic rounding to bf16, with noise that depends on a seed and the position in the tensor.

A number between two bf16 neighbours is rounded up with a probability equal to its relative distance
from the lower one. The expected value is then the number itself, so updates far below the last bit
of a weight still accumulate; rounding to nearest would lose them.

Noise is drawn for blocks of rows of the whole tensor, each from its own generator. A process that
holds only some rows draws the same noise for them as a process that holds all. Results therefore do
not depend on the number of processes or on interruptions.

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
"""Approximate number of elements per block, so that each fp32 temporary of an update takes about
16 MiB."""


@dataclass(frozen=True)
class RowBlock:
    """The rows of one block of noise that this process holds."""

    number: int
    """Number of the block within the whole tensor."""
    held: slice
    """Indices of these rows in this process's shard of the tensor."""
    inside: slice
    """Indices of these rows in the block."""
    shape: tuple[int, ...]
    """Shape of the whole block."""


def blocks(tensor: Tensor) -> Iterator[RowBlock]:
    """Split this process's rows of a tensor at the boundaries of its noise blocks.

    The tensor must have at least one dimension.
    """
    return blocks_of(tuple(tensor.shape), local_rows(tensor))


def blocks_of(shape: tuple[int, ...], held: slice, size: int = _BLOCK) -> Iterator[RowBlock]:
    """Split the rows in the range `held` at the boundaries of blocks of about `size` elements.

    `shape` is that of the whole tensor. The boundaries depend on shape and size alone, so they are
    the same in every process.
    """
    rows = shape[0]
    height = max(1, size // max(1, math.prod(shape[1:])))
    for number in range(held.start // height, -(-held.stop // height)):
        first, end = number * height, min((number + 1) * height, rows)
        start, stop = max(first, held.start), min(end, held.stop)
        if start < stop:
            yield RowBlock(
                number,
                slice(start - held.start, stop - held.start),
                slice(start - first, stop - first),
                (end - first, *shape[1:]),
            )


def noise(key: Sequence[int], block: RowBlock, count: int, device: torch.device) -> Tensor:
    """Draw uniform integers in 0..65535 for the rows of a block: (count, rows, ...) int32.

    Args:
      key: seeds the noise together with the block's number; `name_key` turns names into numbers.
      block: the rows that need noise.
      count: number of integers to draw for each element.
      device: device of the generator; CPU and CUDA draw different numbers.
    """
    mixed = np.random.SeedSequence([*key, block.number]).generate_state(1, np.uint64)
    generator = torch.Generator(device).manual_seed(int(mixed[0]))
    drawn = torch.randint(
        1 << 16, (count, *block.shape), generator=generator, dtype=torch.int32, device=device
    )
    return drawn[:, block.inside]


def name_key(name: str) -> int:
    """Return the CRC-32 of a parameter's name, which unlike `hash` is equal in every process."""
    return zlib.crc32(name.encode())


def rounded(values: Tensor, drawn: Tensor) -> Tensor:
    """Round to bf16, up or down at random; bf16 values, infinities and NaN stay unchanged.

    Args:
      values: fp32 of any shape; overwritten in place.
      drawn: random int32 in 0..65535, of the same shape.
    """
    # bf16 is the upper half of fp32. Adding a uniform integer to the lower half carries into the
    # upper half with a probability proportional to the lower half; the mask then truncates.
    finite = values.isfinite()
    bits = values.view(torch.int32)
    bits.add_(torch.where(finite, drawn, 0)).bitwise_and_(torch.where(finite, -1 << 16, -1))
    return values.to(torch.bfloat16)


def write(target: Tensor, values: Tensor, drawn: Tensor) -> None:
    """Copy fp32 values into `target`, rounding stochastically if `target` is bf16."""
    target.copy_(rounded(values, drawn) if target.dtype == torch.bfloat16 else values)


def held(tensor: Tensor) -> Tensor:
    """Return this process's rows of a tensor, detached, as a view."""
    return local(tensor.detach())
