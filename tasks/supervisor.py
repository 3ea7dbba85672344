"""Runs a command and guarantees that nothing of it survives: `python -m tasks.supervisor CMD...`.

Its standard input is a lifeline held by whoever started it. When that process dies, however it
dies, the lifeline closes and every descendant is killed, also those that moved to a session of
their own (torchrun gives each rank one) or lost their parent: the supervisor is their subreaper.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading

import psutil

KILLED = 137
_PR_SET_CHILD_SUBREAPER = 36


def main(command: list[str]) -> int:
    """Runs `command` until it ends or the lifeline closes; returns its exit status."""
    _adopt_orphans()
    # Besides the lifeline, a worker's pipes are the only descriptors that are passed on.
    fds = tuple(int(fd) for fd in os.environ.get("LCE_WORKER_FDS", "").split(",") if fd)
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, pass_fds=fds, start_new_session=True
    )
    for fd in fds:
        os.close(fd)  # else the other end would never see the child's end closed
    cut = threading.Event()
    threading.Thread(target=_watch_lifeline, args=(cut,), daemon=True).start()
    status = child.wait()
    kill_descendants()
    if cut.is_set():  # whoever killed the child also reaped it, so its status is unknown
        return KILLED
    return status if status >= 0 else 128 - status


def kill_descendants() -> None:
    """Kills every process below this one, until none is left."""
    while children := psutil.Process().children(recursive=True):
        for process in children:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(children, timeout=5)


def _watch_lifeline(cut: threading.Event) -> None:
    while os.read(0, 4096):
        pass
    cut.set()
    kill_descendants()
    os._exit(KILLED)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
