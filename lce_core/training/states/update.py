"""Update bf16 states elementwise: fp32 arithmetic on each process's rows, then rounding.

Compiled, an update is one kernel that reads each tensor once and writes each target once.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from lce_core.training.sharding import local, local_rows
from lce_core.training.states.rounding import noise, rounded

Formula = Callable[..., tuple[Tensor, ...]]
_BLOCK = {"cpu": 1 << 17, "cuda": 1 << 22}
"""Elements per block if uncompiled: int64 temporaries of 1 MiB stay in a CPU's cache; those of 32
MiB keep the number of launches low on a GPU."""


class RoundedUpdate:
    """Compute new values of tensors in fp32; write them, rounded stochastically if in bf16.

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
