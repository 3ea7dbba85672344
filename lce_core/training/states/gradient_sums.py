"""Sum bf16 gradients over the micro-batches of a step, with stochastic rounding.

Autograd would accumulate in bf16 with rounding to nearest: after a few hundred micro-batches, a new
gradient is smaller than half a unit in the last place of the sum and would be lost. Here a hook
adds each parameter's gradient to the sum in fp32 as soon as it exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import torch
from torch import Tensor

from lce_core.training.states.update import RoundedUpdate


class GradientSums:
    """Sum each parameter's gradients over the micro-batches of a training step, in bf16."""

    def __init__(self, parameters: Mapping[str, Tensor], seed: int, *, compiled: bool) -> None:
        self._parameters = parameters
        self._add = RoundedUpdate(_sum, seed, compiled=compiled)
        self._step = 0
        self._sums: dict[str, tuple[Tensor, int]] = {}
        for name, parameter in parameters.items():
            parameter.register_post_accumulate_grad_hook(partial(self._take, name))

    def begin(self, step: int) -> None:
        """Start a training step and discard the previous sums."""
        self._step = step
        self._sums.clear()

    def give_back(self) -> None:
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
        # The optimiser's noise has pass 0.
        self._add(name, (total,), gradient, (self._step, passes))
        self._sums[name] = total, passes + 1


def _sum(total: Tensor, gradient: Tensor) -> tuple[Tensor]:
    return (total + gradient,)
