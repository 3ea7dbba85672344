"""Runs commands of `lce` in forks of one process that has imported what most of them need.

Importing takes a command a second of CPU time; a fork takes none. Like any process, a fork can be
killed when it hangs and leaves no state behind. Prefect is not imported: it reads its settings from
the environment when it is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.repository import ROOT

IMPORTED = (
    "catalog.build",
    "catalog.comparisons",
    "catalog.extraction",
    "lce.cli",
    "lce.keeping.cleaning",
    "lce.keeping.exporting",
    "flows.locking",
    "lce.keeping.prompts",
    "lce.keeping.verifying",
    "lce.views.plan_view",
    "lce.views.planning",
    "lce.views.status_view",
    "flows.pulling",
    "flows.servers.services",
    "mlflow.store.tracking.sqlalchemy_store",
    "tasks.projections",
)


@dataclass(frozen=True)
class Ended:
    """A finished command."""

    code: int
    """Exit code; -9 if the command was killed because it took too long."""
    out: str
    err: str
    seconds: float


class Forks:
    """Runs commands one at a time."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self._process, self._folder = process, folder

    def run(self, arguments: list[str], env: Mapping[str, str], seconds: float) -> Ended:
        """Run `lce` with these arguments; kill its process group after `seconds`."""
        out, err = self._folder / "out", self._folder / "err"
        asked = {"argv": arguments, "env": dict(env), "seconds": seconds, "cwd": str(Path.cwd())}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({**asked, "out": str(out), "err": str(err)}) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        texts = (path.read_text(encoding="utf-8", errors="replace") for path in (out, err))
        return Ended(answer["code"], *texts, answer["seconds"])


@contextlib.contextmanager
def _forked_commands() -> Iterator[Forks]:
    """Start the process that forks; end it at the end of the block."""
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.forked_commands"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"},
        ) as process,
    ):
        try:
            yield Forks(process, Path(folder))
        finally:
            assert process.stdin is not None
            process.stdin.close()


@functools.cache
def shared_forks() -> Forks:
    """Start the process that forks on the first call; it ends with this process."""
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(_forked_commands())


def _main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        begun = time.monotonic()
        pid = os.fork()
        if not pid:
            _become(asked)
        code = _wait(pid, begun + asked["seconds"])
        answer = {"code": code, "seconds": time.monotonic() - begun}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _become(asked: Mapping[str, object]) -> None:
    os.setsid()
    os.chdir(str(asked["cwd"]))
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(str(asked[name]), os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    os.environ.clear()
    os.environ.update(asked["env"])  # type: ignore[arg-type]
    sys.argv = ["lce", *asked["argv"]]  # type: ignore[misc]
    code: object = 70
    try:
        from lce.cli import main

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - it shows how the command would have ended
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _wait(pid: int, limit: float) -> int:
    while time.monotonic() < limit:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            _kill(pid)  # what it left running
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    _kill(pid)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _kill(group: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)


if __name__ == "__main__":
    _main()
