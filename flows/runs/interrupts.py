"""SIGTERM ends a run of the command line as Ctrl-C does.

Slurm, Kubernetes and `docker stop` send it some seconds before they kill. Prefect's own answer
waits for tasks, which live in threads and take new workers for those that are gone.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from flows.runs.deployed import is_deployed


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raises KeyboardInterrupt at SIGTERM, save in a deployment's run, which Prefect cancels."""
    if is_deployed() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
