"""Simulate several hosts on one store: processes with their own host names that start together.

The script of a measurement starts itself once per host, with the option --host.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from flows.runs.scheduling import Scheduler, UnitResult
from flows.settings import make_execution
from lce_core.store.artifacts import Store
from lce_core.store.records import environment
from lce_core.study.units import Unit
from tasks.slots import Slot
from tasks.work_queue import Claim
from tasks.workers import Pool


class Silent:
    """A progress display that shows nothing."""

    def finish(self, *units: Unit, failure: str = "") -> None:
        pass

    def refresh(self) -> None:
        pass

    def show(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def run_hosts(script: str, num_hosts: int, home: Path, *options: str) -> list[dict[str, Any]]:
    """Start `num_hosts` processes of a script together; return the JSON that each one prints."""
    Store(home).prepare()
    command = [sys.executable, script, "--home", str(home), *options]
    hosts = [
        subprocess.Popen([*command, "--host", f"host-{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(num_hosts)
    ]
    while len(list(home.glob("ready-*"))) < num_hosts:
        assert all(host.poll() is None for host in hosts), "a host has died"
        time.sleep(0.05)
    (home / "go").touch()
    return [json.loads(host.communicate(timeout=120)[0]) for host in hosts]


def become_host(name: str) -> None:
    """Give this process another host name, so that others treat its leases as foreign."""
    socket.gethostname = lambda: name


def pull(
    name: str,
    home: Path,
    slots: int,
    units: Sequence[Unit],
    seconds: Mapping[str, float],
    compute: Callable[[Claim, Callable[[UnitResult], None]], None],
) -> float:
    """Compute units in threads, with the scheduling loop of `lce run`; return the seconds.

    Args:
      name: name of this host.
      home: folder of the store.
      slots: number of threads.
      units: units to do, in order.
      seconds: predicted seconds of each step, by fingerprint.
      compute: computes a claimed unit and passes its result to the second argument.
    """

    def submit(claim: Claim, slot: Slot, end: Callable[[UnitResult], None]) -> None:  # noqa: ARG001
        threading.Thread(target=compute, args=(claim, end)).start()

    execution = make_execution({"home": home, "slots": slots, "device": "cpu"})
    _wait_for_all(name, home)
    begun = time.monotonic()
    with Pool(execution) as pool:
        summary = Scheduler(units, set(), pool, Silent(), submit, seconds).run()
    assert not summary.failures
    return time.monotonic() - begun


def _wait_for_all(name: str, home: Path) -> None:
    environment()  # fill its cache now, because the first call takes long
    (home / f"ready-{name}").touch()
    while not (home / "go").exists():
        time.sleep(0.01)
