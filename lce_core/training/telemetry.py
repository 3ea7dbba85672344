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
"""macOS reports `ru_maxrss` in bytes, Linux in KiB."""


class Telemetry:
    """Measure speed and memory of one process, and build the entries of the loss log.

    Without `all_weights` no utilisation is reported: the FLOPs formula assumes that all are
    trained.
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

    def entry(self, step: int, loss: float, norm: float, seconds: float) -> dict[str, Any]:
        """Build the log entry of training step `step` (0 is the first).

        `loss` is in nats per unit of loss weight, `norm` global and before clipping. The entry
        counts steps from 1 and tokens_per_second over all processes. mfu is None if the device's
        peak is unknown or some weights are frozen. peak_memory_bytes is this process's (see
        `peak_memory`).
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
    """Return this process's peak memory in bytes.

    On CUDA, the maximum since the previous call; on a CPU, the largest resident set so far.
    """
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device)
        torch.cuda.reset_peak_memory_stats(device)
        return peak
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _MAXRSS_BYTES
