"""Stochastic rounding to bf16, with noise from a counter-based random number generator.

A number is rounded up with a probability equal to its relative distance from the lower bf16
neighbour. The expected value is then the number itself, so updates far below the last bit of a
weight still accumulate.

Sources: Zamirai et al. 2020, arXiv:2010.06192 (stochastic rounding of weight updates); Salmon et
al. 2011, doi:10.1145/2063384.2063405 (Philox).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_MASK = (1 << 32) - 1
_ROUNDS = 10


def philox(counter: Sequence[Tensor], key: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return four random words of 32 bits for each counter: Philox 4x32 with ten rounds.

    CPU and GPU draw the same. Counter (four) and key (two) are int64 tensors in 0..2^32-1.
    """
    one, two, three, four = counter
    low, high = key
    for _ in range(_ROUNDS):
        # torch multiplies no unsigned integers. An int64 product overflows to the same 64 bits as
        # an unsigned one; the masks drop the sign bits that the shift copies. The low half of a
        # product is masked after the next round's xor.
        first, third = one * 0xD2511F53, three * 0xCD9E8D57
        one, two = (third >> 32 ^ two ^ low) & _MASK, third
        three, four = (first >> 32 ^ four ^ high) & _MASK, first
        low, high = (low + 0x9E3779B9) & _MASK, (high + 0xBB67AE85) & _MASK
    return one, two & _MASK, three, four & _MASK


def noise(words: Tensor, size: int) -> tuple[Tensor, ...]:
    """Draw four uniform integers in 0..65535 for each element: int32 of shape (size,).

    `words` (5,) are the index of the first element, two further words of the counter, and the key.
    """
    start, *others = words.unbind()
    index = start + torch.arange(size, device=words.device)
    drawn = philox((index & _MASK, index >> 32, *others[:2]), others[2:])
    return tuple((word & 0xFFFF).int() for word in drawn)


def rounded(values: Tensor, drawn: Tensor) -> Tensor:
    """Round fp32 to bf16, up or down by `drawn` (0..65535); infinities and NaN stay unchanged."""
    # bf16 is the upper half of fp32. Adding a uniform integer to the lower half carries into the
    # upper half with a probability proportional to the lower half; the mask then truncates.
    bits = values.view(torch.int32)
    carried = ((bits + drawn) & ~0xFFFF).view(torch.float32)
    return torch.where(values.isfinite(), carried, values).bfloat16()
