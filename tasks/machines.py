"""The hardware that an execution may use: this machine, or the nodes of a cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from lce_core.execution import Execution
from tasks.gpus import gpu_name, visible_gpus
from tasks.slots import SlotCounts, slot_counts


@dataclass(frozen=True)
class Machines:
    """The GPUs and cores of one or several machines."""

    gpus: tuple[int, ...]
    cpus: int
    gpu_name: str = ""
    """GPU model, from the driver or from Ray; empty without a GPU."""

    @property
    def num_gpus(self) -> int:
        return sum(self.gpus)

    def training_runs(self, processes: int) -> int:
        """Return how many training runs of `processes` GPUs fit at once, each in one machine."""
        return sum(number // processes for number in self.gpus)

    def slot_counts(self, execution: Execution) -> SlotCounts:
        counts = slot_counts(execution, self.num_gpus)
        if not self.num_gpus:
            return counts
        most = self.training_runs(execution.processes)
        return replace(counts, training=min(counts.training, most))


def this_machine(execution: Execution) -> Machines:
    gpus = 0 if execution.device == "cpu" else len(visible_gpus())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Machines((gpus,), cores or 1, (gpu_name() or "") if gpus else "")
