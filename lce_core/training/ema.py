"""Exponential moving average (EMA) of the weights, updated after every optimiser step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class ExponentialMovingAverage:
    """Moving average of the weights: ema <- decay * ema + (1 - decay) * weights.

    It starts from the initial weights and has no bias correction, because fine-tuning starts from a
    trained base model. The horizon 1 / (1 - decay) should be well below the number of steps.
    """

    def __init__(self, parameters: Mapping[str, Tensor], decay: float) -> None:
        self._parameters, self._decay = parameters, decay
        # fp32 also for bf16 weights, whose last bit is larger than what a step moves the average.
        self.tensors = {
            name: tensor.detach().to(torch.float32, copy=True)
            for name, tensor in parameters.items()
        }

    @torch.no_grad()
    def update(self) -> None:
        for name, tensor in self.tensors.items():
            tensor.lerp_(self._parameters[name].detach().to(tensor.dtype), 1 - self._decay)

    @torch.no_grad()
    def apply(self) -> None:
        """Overwrite the model's weights with their average, before the checkpoint is saved."""
        for name, tensor in self.tensors.items():
            self._parameters[name].copy_(tensor)
