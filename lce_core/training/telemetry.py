"""What a training run tells about each of its steps: the entries of the loss log."""

from __future__ import annotations

import resource
import sys
from typing import TYPE_CHECKING, Any

import torch

from lce_core.devices import peak_flops
from lce_core.study.cost import model_flops_utilisation, training_flops
from lce_core.training.schedule import learning_rate

if TYPE_CHECKING:
    from lce_core.models import LanguageModel
    from lce_core.training.job import TrainingJob

_MAXRSS_BYTES = 1 if sys.platform == "darwin" else 1024
"""Unit of `ru_maxrss`."""


class Telemetry:
    """Makes the entries of one process's log.

    Args:
      job: what is trained.
      base: its base model, whose shape gives FLOPs.
      device: where this process computes.
      sequence_length: tokens that attend to each other.
      all_weights: whether all weights get gradients; else the FLOPs are not those of the formula,
        and no utilisation is given.
    """

    def __init__(
        self,
        job: TrainingJob,
        base: LanguageModel,
        device: torch.device,
        sequence_length: int,
        *,
        all_weights: bool,
    ) -> None:
        self._job, self._device = job, device
        self._peak = peak_flops(device, job.training.precision) if all_weights else None
        # Of full attention: a method that reads fewer keys comes out the better for it.
        self._flops = (
            training_flops(base.shape, base.geometry, sequence_length) if self._peak else 0.0
        )
        self.peak_memory_bytes = 0
        """Of all steps so far."""

    def entry(self, step: int, loss: float, norm: float, seconds: float) -> dict[str, Any]:
        """What the log says of training step `step` (0 is the first).

        Args:
          step: its number.
          loss: in nats per unit of weight, mean over the whole step.
          norm: of all gradients together, before clipping.
          seconds: since the end of the step before.

        Returns:
          step (1 is the first), tokens seen so far, loss, grad_norm, learning_rate,
          tokens_per_second of all processes, mfu (None where the device's peak is not known) and
          peak_memory_bytes of this process: on CUDA the most that was allocated since the entry
          before, on a CPU the largest resident set so far.
        """
        job, tokens = self._job, self._job.training.tokens_per_step
        speed, memory = tokens / seconds, peak_memory(self._device)
        self.peak_memory_bytes = max(self.peak_memory_bytes, memory)
        mfu = None
        if self._peak:
            mfu = model_flops_utilisation(speed / job.processes, self._flops, self._peak)
        return {
            "step": step + 1,
            "tokens": (step + 1) * tokens,
            "loss": loss,
            "grad_norm": norm,
            "learning_rate": learning_rate(job.training, step, job.num_steps),
            "tokens_per_second": round(speed, 1),
            "mfu": mfu,
            "peak_memory_bytes": memory,
        }


def peak_memory(device: torch.device) -> int:
    """Bytes this process held at most; on CUDA as tensors on `device` since this was last asked."""
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
