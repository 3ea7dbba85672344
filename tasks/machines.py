"""The hardware that a run may use: this machine, or the nodes of a cluster; leases of its GPUs.

GPUs of this host are leased by their hardware id, so that no two runs share a GPU. The leases are
outside LCE_HOME, because runs with different homes share the GPUs. A run acquires all or none, so
two runs cannot wait for each other's GPUs.
"""

import contextlib
import math
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.store.lease import Lease

WAIT_SECONDS = 5.0
LEASE_FOLDER = Path("/tmp") if os.name == "posix" else Path(tempfile.gettempdir())
"""Folder of all runs of the host. TMPDIR is unsuitable: clusters set it for each job."""


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


def this_machine(execution: Execution) -> Machines:
    gpus = 0 if execution.device == "cpu" else len(visible_gpus())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    usable = min([cores or 1, *map(math.ceil, cpu_quotas())])
    return Machines((gpus,), usable, gpu_name() if gpus else "")


def cpu_quotas(
    own: Path = Path("/proc/self/cgroup"), mounted: Path = Path("/sys/fs/cgroup")
) -> list[float]:
    """Return the CPU limits, in cores, of this process's cgroup and its parents.

    In a container `own`, this process's cgroups, may name folders that the file system at `mounted`
    lacks; these are skipped.
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


def visible_gpus() -> dict[str, str]:
    """Return the UUID of each GPU that this process may use, by its CUDA name, such as "0".

    Does not import torch. A name that nvidia-smi does not list stands for its own UUID.
    """
    installed = _query("index,uuid")
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return installed
    names = [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1")]
    return {name: installed.get(name, name) for name in names}


def gpu_name() -> str:
    visible = visible_gpus()
    listed = _query("index,name") if visible else {}
    return next((name for index, name in listed.items() if index in visible), "")


def never(seconds: float) -> bool:
    """Wait `seconds` and return False: the `has_to_end` of callers that wait without a limit."""
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def leased_gpus(
    least: int, most: int, has_to_end: Callable[[float], bool] = never
) -> Iterator[list[str]]:
    """Lease up to `most` free GPUs, wait until `least` are free, and yield their CUDA names.

    Between attempts, `has_to_end` waits the given seconds; True ends the wait: KeyboardInterrupt.
    """
    gpus = visible_gpus()
    if len(gpus) < least:
        raise SpecError(
            "execution.processes",
            f"{len(gpus)} visible GPUs",
            f"at least {least}, one for each process of a training run",
            "lower --processes",
        )
    folder = LEASE_FOLDER / f"lce-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        with contextlib.ExitStack() as leases:
            leased: list[str] = []
            for name, hardware in gpus.items():
                if len(leased) < most and (lease := Lease.acquire(folder, f"gpu-{hardware}")):
                    leases.enter_context(lease)
                    leased.append(name)
            if len(leased) >= least:
                yield leased
                return
        if has_to_end(WAIT_SECONDS):
            raise KeyboardInterrupt


def _query(fields: str) -> dict[str, str]:
    try:
        listed = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    lines = listed.stdout.splitlines() if listed.returncode == 0 else []
    pairs = (line.split(",", 1) for line in lines if "," in line)
    return {index.strip(): value.strip() for index, value in pairs}
