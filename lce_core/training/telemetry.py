"""Speed, loss and memory of each training step: the entries of the loss log."""

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
"""Bytes per unit of `ru_maxrss`, which macOS reports in bytes and Linux in KiB."""


class Telemetry:
    """Measure speed and memory of one process, and build the entries of the loss log.

    Args:
      job: the job that is trained.
      base: the job's base model, whose shape determines the FLOPs.
      device: device of this process.
      sequence_length: number of tokens that attend to each other.
      all_weights: True if all weights are trained. The FLOPs formula assumes this, so with frozen
        weights no utilisation is reported.
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
        # The FLOPs are those of full attention, so methods that read fewer keys get a higher MFU.
        self._flops = (
            training_flops(base.shape, base.geometry, sequence_length) if self._peak else 0.0
        )
        self.peak_memory_bytes = 0
        """Largest value of `peak_memory` over all steps so far."""

    def entry(self, step: int, loss: float, norm: float, seconds: float) -> dict[str, Any]:
        """Build the log entry of training step `step` (0 is the first).

        Args:
          step: number of the step.
          loss: mean over the whole step, in nats per unit of loss weight.
          norm: global gradient norm before clipping.
          seconds: time since the end of the previous step.

        Returns:
          Mapping of step (counted from 1), tokens seen so far, loss, grad_norm, learning_rate,
            tokens_per_second over all processes, mfu (model FLOPs utilisation; None if the device's
            peak is unknown or some weights are frozen) and peak_memory_bytes of this process: on
            CUDA the maximum since the previous entry, on a CPU the largest resident set so far.
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
    """Return the peak memory of this process in bytes.

    On CUDA: the maximum size of all tensors on `device` since the previous call. On a CPU: the
    largest resident set since the process started.
    """
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
