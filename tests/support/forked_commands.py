"""Runs commands of `lce` in forks of one process that has imported what most of them need.

A fork saves a second of CPU time, can be killed when it hangs, and leaves no state behind. Prefect
is not imported: it reads its settings from the environment when it is imported.
"""

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    [
        "catalog.build",
        "catalog.comparisons",
        "catalog.extraction",
        "lce.cli",
        "lce.keeping.cleaning",
        "lce.keeping.exporting",
        "flows.locking",
        "lce.keeping.verifying",
        "lce.views.plan_view",
        "lce.views.planning",
        "lce.views.status_view",
        "lce_core.prompts",
        "flows.pulling",
        "flows.servers.services",
        "mlflow.store.tracking.sqlalchemy_store",
        "tasks.projections",
    ]
)


@dataclass(frozen=True)
class Ended:
    code: int
    """Exit code; -9 if the command was killed because it took too long."""
    out: str
    err: str
    seconds: float


def run_forked(arguments: list[str], env: Mapping[str, str], seconds: float) -> Ended:
    """Run `lce` with these arguments; kill its process group after `seconds`."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("out", "err")]
        for file in files:
            file.touch()
        begun = time.monotonic()
        outputs = [str(file) for file in files]
        process = _FORKS.Process(
            target=_become, args=(arguments, dict(env), str(Path.cwd()), outputs)
        )
        process.start()
        assert process.pid is not None
        process.join(seconds)
        process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # what it left running
        process.join()
        texts = (file.read_text(encoding="utf-8", errors="replace") for file in files)
        return Ended(process.exitcode or 0, *texts, time.monotonic() - begun)


def _become(arguments: list[str], env: dict[str, str], cwd: str, outputs: list[str]) -> None:
    os.setsid()
    os.chdir(cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in enumerate(outputs, start=1):
        os.dup2(os.open(name, os.O_WRONLY), number)
    os.environ.clear()
    os.environ.update(env)
    sys.argv = ["lce", *arguments]
    code: object = 70
    try:
        from flows import settings
        from lce.cli import main

        settings.MAX_CPU_SLOTS = 1  # on any machine; a second worker takes 8 s of CPU time
        main()
    except SystemExit as end:
        code = end.code
    except BaseException:  # noqa: BLE001 - it shows how the command would have ended
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 0 if code is None else 1)
