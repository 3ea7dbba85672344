"""GPUs of this host, leased by their hardware id, so that no two runs ever use the same one.

Leases lie outside LCE_HOME, since runs with different homes share the GPUs. A run takes all the
GPUs it needs at once or none, so two runs never wait for each other's.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from lce_core.errors import SpecError
from lce_core.store.lease import Lease

WAIT_SECONDS = 5.0
HOST_WIDE = Path("/tmp") if os.name == "posix" else Path(tempfile.gettempdir())
"""Not TMPDIR, which clusters set for each job."""


def visible_gpus() -> dict[str, str]:
    """Hardware ids of the GPUs this process may use, by the name CUDA knows them by here.

    Loads no torch. Without nvidia-smi the names in CUDA_VISIBLE_DEVICES stand for themselves.
    """
    installed = _installed()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return installed
    names = [name.strip() for name in chosen.split(",") if name.strip() not in ("", "-1")]
    return {name: installed.get(name, name) for name in names}


def gpu_name() -> str | None:
    """The first visible GPU as its driver names it; None where there is none, or no nvidia-smi."""
    visible = visible_gpus()
    listed = _queried("index,name") if visible else {}
    return next((name for index, name in listed.items() if index in visible), None)


def never(seconds: float) -> bool:
    """Waits for so many seconds; nobody asks to end."""
    time.sleep(seconds)
    return False


@contextlib.contextmanager
def leased_gpus(
    least: int, most: int, has_to_end: Callable[[float], bool] = never
) -> Iterator[list[str]]:
    """Names of between `least` and `most` GPUs, as many as are free; waits for `least`.

    Args:
      least: without which nothing can be done.
      most: that are of use.
      has_to_end: waits for so many seconds; whether nobody wants them any more.

    Raises:
      SpecError: fewer than `least` GPUs are visible.
      KeyboardInterrupt: nobody wants them any more.
    """
    gpus = visible_gpus()
    if len(gpus) < least:
        raise SpecError(
            "execution.processes",
            f"{len(gpus)} visible GPUs",
            f"{least} GPUs, one a process of a training run",
            "lower --processes",
        )
    folder = HOST_WIDE / f"lce-gpus-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    while True:
        with contextlib.ExitStack() as leases:
            taken = _take(gpus, folder, most, leases)
            if len(taken) >= least:
                yield taken
                return
        if has_to_end(WAIT_SECONDS):
            raise KeyboardInterrupt


def _take(
    gpus: dict[str, str], folder: Path, wanted: int, leases: contextlib.ExitStack
) -> list[str]:
    taken: list[str] = []
    for name, hardware in gpus.items():
        if len(taken) < wanted and (lease := Lease.acquire(folder, f"gpu-{hardware}")):
            leases.enter_context(lease)
            taken.append(name)
    return taken


def _installed() -> dict[str, str]:
    return _queried("index,uuid")


def _queried(fields: str) -> dict[str, str]:
    """The second of two fields by the first, of each installed GPU."""
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
