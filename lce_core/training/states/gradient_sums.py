"""Sums of bf16 gradients over the micro-batches of a step, rounded stochastically.

Autograd would add them up in bf16, rounded to the nearest: after some hundred micro-batches the
next gradient is less than half the last bit of the sum and is lost. Here each parameter's gradient
is taken away as soon as a backward pass has finished it, and added to the sum in fp32, so one
gradient exists beside the sums, not all.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from lce_core.training.states.rounding import blocks, held, name_key, noise, write

_PURPOSE = 1
"""Tells this noise from the optimizer's."""


class GradientSums:
    """Takes gradients as backward passes finish them, and gives their sums back.

    Args:
      parameters: whose gradients, by name.
      seed: of the noise, with the step and the number of the pass.
    """

    def __init__(self, parameters: Mapping[str, Tensor], seed: int) -> None:
        self._parameters, self._seed = parameters, seed
        self._step = 0
        self._sums: dict[str, tuple[Tensor, int]] = {}
        for name, parameter in parameters.items():
            parameter.register_post_accumulate_grad_hook(partial(self._take, name))

    def begin(self, step: int) -> None:
        """Starts the sums of a step."""
        self._step = step
        self._sums.clear()

    def give_back(self) -> None:
        """Makes the sums the parameters' gradients."""
        for name, (total, _) in self._sums.items():
            self._parameters[name].grad = total
        self._sums.clear()

    @torch.no_grad()
    def _take(self, name: str, parameter: Tensor) -> None:
        gradient, parameter.grad = parameter.grad, None
        assert gradient is not None
        if name not in self._sums:
            self._sums[name] = gradient, 1
            return
        total, passes = self._sums[name]
        sums, added = held(total), held(gradient)
        for block in blocks(parameter):
            rows = sums[block.held]
            key = (self._seed, self._step, name_key(name), _PURPOSE, passes)
            (drawn,) = noise(key, block, 1, rows.device)
            write(rows, rows.float() + added[block.held].float(), drawn)
        self._sums[name] = total, passes + 1
