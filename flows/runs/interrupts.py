"""Make SIGTERM end `lce run` as Ctrl-C does.

Slurm, Kubernetes and `docker stop` send SIGTERM some seconds before they kill a process. Prefect's
own handler would wait for running tasks, which would meanwhile retry units.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flows.runs.deployed import is_deployed


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM, except in a deployment, where Prefect handles it."""
    if is_deployed() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
