"""Runs a command and guarantees that nothing of it survives: `python -m tasks.supervisor CMD...`.

Two processes watch over the command: the supervisor, and below it a guard that it forks. Each has a
lifeline that ends when its holder dies, however it dies: the supervisor's is its standard input,
held by whoever started it, the guard's a pipe that the supervisor holds. Whose lifeline ends kills
every descendant, also those that moved to a session of their own (torchrun gives each rank one) or
lost their parent: both are subreapers. So whichever one process is killed, another one clears up.
Where supervisor and guard are killed in the same moment, the kernel kills the command with them.
The subreapers and the kernel's help are Linux's; the lifelines are everywhere.

SIGTERM and SIGUSR1 are passed on to the command, which may then end in its own way.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType

import psutil

KILLED = 137
_PASSED_ON = (signal.SIGTERM, signal.SIGUSR1)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Runs `command` until it ends or a lifeline does; returns its exit status."""
    # Besides the lifeline, a worker's pipes are the only descriptors that are passed on.
    fds = tuple(int(fd) for fd in os.environ.get("LCE_WORKER_FDS", "").split(",") if fd)
    lifeline, held = os.pipe()
    if guard := os.fork():  # no thread runs yet
        os.close(lifeline)
        status = _watch(guard, 0, fds)
        os.close(held)
        return status
    os.close(held)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        pass_fds=fds,
        start_new_session=True,
        preexec_fn=_dying_with(os.getpid()),  # no thread runs here either
    )
    child.returncode = 0  # it is waited for by its pid: without this, Popen would warn
    return _watch(child.pid, lifeline, fds)


def kill_descendants() -> None:
    """Kills every process below this one, until none is left."""
    while children := psutil.Process().children(recursive=True):
        for process in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(children, timeout=5)


def _watch(child: int, lifeline: int, fds: tuple[int, ...]) -> int:
    """Waits for a child of this process and lets nothing of it survive; returns its status."""

    def pass_on(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in _PASSED_ON:
        signal.signal(number, pass_on)
    for fd in fds:
        os.close(fd)  # else the other end would never see the command's end closed
    cut = threading.Event()
    threading.Thread(target=_kill_at_end, args=(lifeline, cut), daemon=True).start()
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # whoever killed the child also reaped it
        status = -signal.SIGKILL
    for number in _PASSED_ON:
        signal.signal(number, signal.SIG_IGN)  # the child's pid may be another's by now
    kill_descendants()
    if cut.is_set():
        return KILLED
    return status if status >= 0 else 128 - status


def _kill_at_end(lifeline: int, cut: threading.Event) -> None:
    while os.read(lifeline, 4096):
        pass
    cut.set()
    kill_descendants()
    os._exit(KILLED)


def _dying_with(parent: int) -> Callable[[], None]:
    """For a new process before it becomes its command: the kernel kills it when `parent` dies."""

    def ask() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # dead already, so that no signal will come
            os._exit(KILLED)

    return ask


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
