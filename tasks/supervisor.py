"""Run a command whose processes all die with their caller: `python -m tasks.supervisor CMD...`.

Two processes watch the command: the supervisor, and its child, the guard, which starts the command.
Each watcher reads from a lifeline, a pipe that closes when the process that holds its other end
dies. The supervisor's lifeline is its standard input, held open by its caller. The guard's lifeline
is held open by the supervisor.

When its lifeline closes, a watcher kills all its descendants. These include processes that moved to
another session (torchrun starts each rank in its own) or lost their parent, because both watchers
are subreapers. If any one of these processes is killed, another one therefore kills the rest. If
supervisor and guard are killed at the same moment, the kernel kills the command (PR_SET_PDEATHSIG).
Subreapers and PR_SET_PDEATHSIG exist only on Linux; the lifelines work everywhere.

Both watchers forward SIGTERM and SIGUSR1, so that the command can shut down by itself.
"""

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
"""Exit status that shells report for a process killed by SIGKILL."""
_FORWARDED = (signal.SIGTERM, signal.SIGUSR1)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Run `command`; return its exit status, or `KILLED` if a lifeline closed before it ended."""
    # Descriptors of a worker's pipes: the only ones, apart from the lifeline, to be inherited.
    fds = tuple(int(fd) for fd in os.environ.get("LCE_WORKER_FDS", "").split(",") if fd)
    lifeline, held = os.pipe()
    if guard := os.fork():  # forking is safe: no thread runs yet
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
        preexec_fn=_dying_with(os.getpid()),  # safe: no thread runs here either
    )
    child.returncode = 0  # avoid a warning of Popen: `_watch` waits for the pid
    return _watch(child.pid, lifeline, fds)


def kill_descendants() -> None:
    """Kill all descendants of this process, and those that they start meanwhile."""
    while children := psutil.Process().children(recursive=True):
        for process in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(children, timeout=5)


def _watch(child: int, lifeline: int, fds: tuple[int, ...]) -> int:
    """Wait for a child, then kill all other descendants; return the child's exit status.

    If the lifeline closes first, exit with `KILLED`. Close `fds`, the command's pipes, here.
    """

    def forward(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, number)

    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for number in _FORWARDED:
        signal.signal(number, forward)
    for fd in fds:
        os.close(fd)  # otherwise the reader would not notice that the command closed its end
    is_cut = threading.Event()
    threading.Thread(target=_kill_at_end, args=(lifeline, is_cut), daemon=True).start()
    try:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    except ChildProcessError:  # the process that killed the child has also reaped it
        status = -signal.SIGKILL
    for number in _FORWARDED:
        signal.signal(number, signal.SIG_IGN)  # the child's pid may have been reused
    kill_descendants()
    if is_cut.is_set():
        return KILLED
    return status if status >= 0 else 128 - status


def _kill_at_end(lifeline: int, is_cut: threading.Event) -> None:
    while os.read(lifeline, 4096):
        pass
    is_cut.set()
    kill_descendants()
    os._exit(KILLED)


def _dying_with(parent: int) -> Callable[[], None]:
    """Return a `preexec_fn` that makes the kernel kill the new process when `parent` dies."""

    def ask() -> None:
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has died already, so no signal will come
            os._exit(KILLED)

    return ask


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
