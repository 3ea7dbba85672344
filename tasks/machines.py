"""What there is to compute on, here or in a cluster."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from lce_core.execution import Execution
from tasks.gpus import gpu_name, visible_gpus
from tasks.slots import Shape, shape_of


@dataclass(frozen=True)
class Machines:
    """GPUs and cores of one machine or several."""

    gpus: tuple[int, ...]
    """GPUs of each."""
    cpus: int
    """Cores of all together."""
    gpu_name: str = ""
    """As their driver or Ray names them."""

    @property
    def num_gpus(self) -> int:
        """Of all together."""
        return sum(self.gpus)

    def training_runs(self, processes: int) -> int:
        """Runs of so many processes at the same time, each within one machine."""
        return sum(number // processes for number in self.gpus)

    def shape(self, execution: Execution) -> Shape:
        """The slots of an execution that uses all of it."""
        found = shape_of(execution, self.num_gpus)
        if not self.num_gpus:
            return found
        most = self.training_runs(execution.processes)
        return replace(found, training=min(found.training, most))


def this_machine(execution: Execution) -> Machines:
    """What an execution may use here."""
    gpus = 0 if execution.device == "cpu" else len(visible_gpus())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Machines((gpus,), cores or 1, (gpu_name() or "") if gpus else "")
