"""The processes of a run, found by a mark that all of them inherit, and told apart."""

import contextlib
import json
import uuid
from pathlib import Path

import psutil

from tests.support.studies import environment

MARK = "LCE_TEST_MARKER"
ROLES = {"server": ("-m", "flows.servers.guarded_prefect"), "worker": ("-m", "tasks.worker")}
"""Words that follow each other in the command of a process that does the work."""


def new_marker() -> str:
    return uuid.uuid4().hex


def marked(home: Path, marker: str) -> dict[str, str]:
    """The environment of a command whose processes shall be found."""
    return environment(home, **{MARK: marker})


def survivors(marker: str) -> list[psutil.Process]:
    """Every process that runs and carries the mark."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            mine = process.environ().get(MARK) == marker
            if mine and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def holders(home: Path) -> list[int]:
    """Return the process ids in the leases of a home."""
    found = []
    for file in (home / "leases").glob("*.json"):
        with contextlib.suppress(OSError, ValueError):  # one that is given back right now
            found.append(json.loads(file.read_text(encoding="utf-8"))["pid"])
    return found


def playing(marker: str, role: str) -> list[psutil.Process]:
    """The marked processes of a role: `server`, `worker`, or `supervisor` of either."""
    found = []
    for process in survivors(marker):
        with contextlib.suppress(psutil.Error):
            if _role(process.cmdline()) == role:
                found.append(process)
    return found


def _role(command: list[str]) -> str:
    line = " ".join(command)
    if "supervisor" in line:
        return "supervisor"  # its arguments are the command that it watches
    return next((role for role, words in ROLES.items() if " ".join(words) in line), "")


def require_no_dump(output: str, *more: str) -> None:
    """Fail if a command printed what no user should read, whatever died."""
    for word in ("Traceback", "ERROR", "Error", *more):
        assert word not in output, output
