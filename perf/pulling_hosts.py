"""Simulate several hosts on one store: processes with their own host names that start together."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lce_core.store.artifacts import Store
from lce_core.store.records import environment
from lce_core.study.units import Unit


class Silent:
    """A progress display that shows nothing."""

    def finish(self, unit: Unit) -> None:
        pass

    def refresh(self) -> None:
        pass

    def show(self, text: str) -> None:
        pass

    def close(self) -> None:
        pass


def told_by_hosts(script: str, num_hosts: int, home: Path, *options: str) -> list[dict[str, Any]]:
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


def wait_for_all(name: str, home: Path) -> None:
    """Report this host as ready, and wait until all hosts are ready."""
    environment()  # fill its cache now, because the first call takes long
    (home / f"ready-{name}").touch()
    while not (home / "go").exists():
        time.sleep(0.01)
