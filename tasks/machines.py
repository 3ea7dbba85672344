"""The hardware that an execution may use: this machine, or the nodes of a cluster."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path

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
        return slot_counts(execution, self.gpus)


def this_machine(execution: Execution) -> Machines:
    gpus = 0 if execution.device == "cpu" else len(visible_gpus())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    usable = min([cores or 1, *map(math.ceil, cpu_quotas())])
    return Machines((gpus,), usable, (gpu_name() or "") if gpus else "")


def cpu_quotas(
    own: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> list[float]:
    """Return the CPU limits, in cores, of this process's cgroup and its parents.

    `own` lists the cgroups of this process, `mounted` is the file system of both versions. In a
    container `own` may name folders that `mounted` lacks; these are skipped.
    """
    quotas = []
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = mounted / "cpu" if controllers else mounted
        group = root / path.lstrip("/")
        for folder in (group, *group.parents):
            if not folder.is_relative_to(root):
                break
            if controllers:
                files = (folder / "cpu.cfs_quota_us", folder / "cpu.cfs_period_us")
                limit = "".join(map(_text, files)).split()
            else:
                limit = _text(folder / "cpu.max").split()
            if len(limit) == 2 and limit[0] not in ("max", "-1"):
                quotas.append(int(limit[0]) / int(limit[1]))
    return quotas


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
