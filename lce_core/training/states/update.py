"""Update bf16 states elementwise: fp32 arithmetic on each process's rows, then rounding.

Compiled, an update is one kernel that reads each tensor once and writes each target once.
Uncompiled, every operation of the formula and of the noise is a kernel of its own.
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
"""Elements per block if uncompiled: int64 temporaries of 1 MiB stay in a CPU's cache; those of
32 MiB keep the number of launches low on a GPU."""


class RoundedUpdate:
    """Compute new values of tensors in fp32; write them, rounded stochastically if in bf16.

    The noise of an element depends on seed, parameter name, step, number of the pass and index in
    the whole tensor. Results therefore do not depend on the number of processes, on blocks or on
    interruptions.

    Args:
      formula: returns the new values of the targets. Its arguments are the targets and the gradient
        in fp32, all of one shape, followed by numbers.
      seed: seed of the rounding noise.
      compiled: compile the update with torch.compile.
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
        """Update the targets in place.

        Args:
          name: name of the parameter.
          targets: up to four contiguous tensors of the parameter's shape, sharded like it.
          gradient: gradient of the same shape, sharded in the same way.
          when: training step, and number of the pass within it; no two updates of a parameter may
            have the same pair.
          numbers: the formula's last arguments; it gets them as fp32.
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
