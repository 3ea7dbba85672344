"""Exponential moving average (EMA) of the weights, updated after every optimiser step."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class ExponentialMovingAverage:
    """ema <- decay * ema + (1 - decay) * weights, from the weights training started with.

    No bias correction: for fine-tuning the starting point is the base model, a fair average of its
    own; choose a decay whose horizon 1 / (1 - decay) is well below the number of training steps.
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
        """Move the EMA towards the present weights."""
        for name, tensor in self.tensors.items():
            tensor.lerp_(self._parameters[name].detach().to(tensor.dtype), 1 - self._decay)

    @torch.no_grad()
    def apply(self) -> None:
        """Overwrite the weights with their EMA; for saving, after the last step."""
        for name, tensor in self.tensors.items():
            self._parameters[name].copy_(tensor)
