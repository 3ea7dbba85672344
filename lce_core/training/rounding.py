"""Stochastic rounding to bf16, with noise from a counter-based random number generator.

A number is rounded up with a probability equal to its relative distance from the lower bf16
neighbour. The expected value is then the number itself, so updates far below the last bit of a
weight still accumulate.

Sources: Zamirai et al. 2020, arXiv:2010.06192 (stochastic rounding of weight updates); Salmon et
al. 2011, doi:10.1145/2063384.2063405 (Philox).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lce_core.training.sharding import local, local_rows

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


Formula = Callable[..., tuple[Tensor, ...]]
_BLOCK = {"cpu": 1 << 17, "cuda": 1 << 22}
"""Elements per block if uncompiled: int64 temporaries of 1 MiB stay in a CPU's cache; those of 32
MiB keep the number of launches low on a GPU."""


class RoundedUpdate:
    """Compute new values of tensors in fp32; write them, rounded stochastically if in bf16.

    Compiled, an update is one kernel that reads each tensor once and writes each target once.

    The noise of an element depends on seed, parameter name, step, pass and index in the whole
    tensor, so results do not depend on the number of processes, blocks or interruptions. `formula`
    gets targets and gradient in fp32, then numbers, and returns the targets' new values.
    """

    def __init__(self, formula: Formula, seed: int, *, compiled: bool) -> None:
        self._formula, self._seed, self._compiled = formula, seed, compiled
        self._write = torch.compile(_write, dynamic=True) if compiled else _write

    def __call__(
        self,
        name: str,
        targets: Sequence[Tensor],
        gradient: Tensor,
        when: tuple[int, int],
        numbers: Sequence[float] = (),
    ) -> None:
        """Update up to four contiguous targets in place.

        `when` is training step and pass; no two updates of a parameter may have the same pair. All
        tensors are sharded alike.
        """
        # A name's CRC-32 is, unlike its hash, equal in every process.
        mixed = np.random.SeedSequence([self._seed, zlib.crc32(name.encode())])
        key = mixed.generate_state(2).tolist()
        start = local_rows(gradient).start * gradient.shape[1:].numel()
        flat = [local(each.detach()).view(-1) for each in targets]
        added = local(gradient.detach()).reshape(-1)
        # Do not wait for the device: gradients are summed during the backward pass.
        given = torch.tensor(numbers, dtype=torch.float32).to(added.device, non_blocking=True)
        size = max(1, len(added)) if self._compiled else _BLOCK[added.device.type]
        for low in range(0, len(added), size):
            block = slice(low, low + size)
            words = torch.tensor([start + low, *when, *key])
            self._write(
                self._formula,
                [each[block] for each in flat],
                added[block],
                given,
                words.to(added.device, non_blocking=True),
            )


def _write(
    formula: Formula, targets: list[Tensor], gradient: Tensor, numbers: Tensor, words: Tensor
) -> None:
    floats = [each.float() for each in (*targets, gradient)]
    values = formula(*floats, *numbers.unbind())
    drawn = noise(words, len(gradient))
    for target, value, places in zip(targets, values, drawn, strict=False):
        target.copy_(rounded(value, places) if target.dtype == torch.bfloat16 else value)
