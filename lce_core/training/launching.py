"""Run one job in several processes with `accelerate launch` and collect progress and results.

The driver starts `accelerate launch` with its own configuration file, so that only the machines of
a user's Accelerate file have an effect. Rank 0 prints progress as JSON lines. The processes leave
the result and errors as files in a private folder.

The driver holds the write end of every worker's standard input and closes it when the launcher
exits. If the driver or the launcher dies for any reason, the workers read end-of-file and exit, so
that no orphan keeps a GPU.

A run can use several machines with a shared file system: the driver runs on the main machine, and
`join` on each other machine. Workers there get the job's path from the main machine's rendezvous
store, and exit when the store disappears.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

import torch
from torch.distributed.rendezvous import rendezvous

from lce_core.errors import LceError, ProcessFailedError, WorkerLostError, restored
from lce_core.execution import AccelerateConfig
from lce_core.progress import Report
from lce_core.store.odd_files import write_file

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_SIGTERM_TO_SIGKILL_SECONDS = 20.0
_POLL_SECONDS = 2.0
_JOB = "lce_job"
"""Key of the job's path in the rendezvous store."""
_QUOTED_STDERR_CHARACTERS = 2000


def launch(
    module: str, payload: str, machines: AccelerateConfig, report: Report, scratch: Path
) -> dict[str, Any]:
    """Run `python -m module` in the processes of all machines and return the result of rank 0.

    The first error of a process is raised in its own class if it is an LceError,
    torch.OutOfMemoryError, MemoryError or OSError. A killed driver leaves a temporary folder in
    `scratch`, which should be cleaned up later.
    """
    with tempfile.TemporaryDirectory(prefix="launch-", dir=scratch) as name:
        folder = Path(name)
        job = folder / "job.json"
        job.write_text(payload, encoding="utf-8")
        with (folder / "stderr").open("w+", encoding="utf-8", errors="replace") as stderr:
            with _launcher(folder, machines, [module, str(job)], stderr) as process:
                assert process.stdout is not None
                for line in process.stdout:
                    if entry := _progress(line):
                        report(entry)
            code = process.wait()
            _raise_first_error(folder)
            result = folder / "result.json"
            if code or not result.exists():
                stderr.seek(0)
                tail = stderr.read()[-_QUOTED_STDERR_CHARACTERS:]
                raise WorkerLostError(
                    module,
                    f"exit code {code} of `accelerate launch`, without a result or an error file",
                    "a result from every process",
                    "look for the cause in the last lines of the error output below",
                    tail,
                )
        facts: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return facts


def join(module: str, machines: AccelerateConfig) -> NoReturn:
    """Run this machine's processes of every job that the main machine launches."""
    with tempfile.TemporaryDirectory(prefix="lce-join-") as folder:
        while True:
            if _is_launching(machines):
                with _launcher(Path(folder), machines, [module], sys.stderr) as process:
                    assert process.stdout is not None
                    for _ in process.stdout:  # only rank 0 reports progress
                        pass
            time.sleep(_POLL_SECONDS)


def _is_launching(machines: AccelerateConfig) -> bool:
    address = (machines.main_process_ip, machines.main_process_port)
    try:
        socket.create_connection(address, timeout=_POLL_SECONDS).close()
    except OSError:
        return False
    return True


def work(job: Path | None, carry_out: Callable[[str, Report], dict[str, Any]]) -> None:
    """Run `carry_out` in one process of `launch` or `join`; save its result or error."""
    threading.Thread(target=_exit_with_launcher, daemon=True).start()
    store, rank, _ = next(rendezvous("env://"))
    if job is None:
        job = Path(store.get(_JOB).decode())
        threading.Thread(target=_exit_with_store, args=(store,), daemon=True).start()
    elif rank == 0:
        store.set(_JOB, str(job))
    try:
        facts = carry_out(job.read_text(encoding="utf-8"), _print_progress)
    except Exception as raised:
        error = _attributed(raised)
        described = {
            "class": type(error).__name__,
            "parts": error.parts if isinstance(error, LceError) else (),
            "message": str(error),
            "module": carry_out.__module__,
            "errno": getattr(error, "errno", None),
            "trace": traceback.format_exc(),
        }
        write_file(job.parent / f"error-{rank}.json", json.dumps(described).encode())
        raise
    if rank == 0:
        write_file(job.parent / "result.json", json.dumps(facts).encode())
    torch.distributed.destroy_process_group()


def _attributed(error: Exception) -> Exception:
    """Return a WorkerLostError if another process hangs or ended; return other errors unchanged."""
    # Gloo raises plain RuntimeErrors, which only their text tells apart.
    if isinstance(error, torch.distributed.DistError) or "gloo/transport" in str(error):
        return WorkerLostError(
            "training",
            f"{type(error).__name__} while exchanging tensors with the other processes",
            "an answer of every process in time",
            "look for a process that hangs or was killed; the text below may name it",
            str(error),
        )
    return error


@contextlib.contextmanager
def _launcher(
    folder: Path, machines: AccelerateConfig, arguments: Sequence[str], stderr: IO[str]
) -> Iterator[subprocess.Popen[str]]:
    several = machines.num_machines > 1
    settings = {
        "compute_environment": "LOCAL_MACHINE",
        # Accelerate's name for launching through torchrun. The job itself selects CPU or CUDA.
        "distributed_type": "MULTI_GPU",
        "num_processes": machines.num_processes,
        "num_machines": machines.num_machines,
        "machine_rank": machines.machine_rank,
        "main_process_ip": machines.main_process_ip if several else "127.0.0.1",
        "main_process_port": machines.main_process_port if several else 0,  # any free port
        "same_network": True,
        "mixed_precision": "no",
        "use_cpu": False,
    }
    config = folder / "accelerate.json"
    config.write_text(json.dumps(settings), encoding="utf-8")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(config)]
    process = subprocess.Popen(
        [*command, "-m", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        errors="replace",
    )
    # If the launcher is killed, its workers keep stdout open, and reading stdout would block until
    # they end. This thread closes their stdin as soon as the launcher is gone, and they exit.
    ender = threading.Thread(target=_release, args=(process,), daemon=True)
    ender.start()
    try:
        yield process
        process.wait()
    finally:
        assert process.stdin is not None
        # End of file tells the workers to exit.
        process.stdin.close()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(_SIGTERM_TO_SIGKILL_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        ender.join()
        assert process.stdout is not None
        process.stdout.close()


def _release(process: subprocess.Popen[str]) -> None:
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def _exit_with_launcher() -> None:
    # Use os.read: a thread blocked inside sys.stdin holds its lock, which hangs the interpreter's
    # shutdown.
    while os.read(0, 1):
        pass
    os._exit(1)


def _exit_with_store(store: Store) -> None:
    """Exit when the main machine, which holds the store, has stopped its launcher."""
    with contextlib.suppress(torch.distributed.DistError):
        while store.check([_JOB]):
            time.sleep(_POLL_SECONDS)
    os._exit(1)


def _print_progress(entry: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(entry) + "\n")
    sys.stdout.flush()


def _progress(line: str) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:  # a plug-in may print lines of its own
        return None
    return entry if isinstance(entry, dict) and "steps" in entry else None


def _raise_first_error(folder: Path) -> None:
    found = sorted(folder.glob("error-*.json"), key=lambda path: path.stat().st_mtime_ns)
    if not found:
        return
    described = json.loads(found[0].read_text(encoding="utf-8"))
    name, message, trace = described["class"], described["message"], described["trace"]
    if own := restored(name, described["parts"]):
        raise own
    for kind in (torch.OutOfMemoryError, MemoryError):
        if name == kind.__name__:
            raise kind(message)
    if described["errno"] is not None:
        raise OSError(described["errno"], message)
    raise ProcessFailedError(
        described["module"],
        f"{name}: {message}",
        "no exception",
        "report this bug with the lines below",
        trace,
    )
