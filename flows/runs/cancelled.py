"""A run of the command line ends when its flow run is cancelled or deleted in Prefect.

Prefect stops what a worker started. Nothing tells a flow in the user's own process, which would go
on and fail when it reports its end; so this asks the server now and then.
"""

from __future__ import annotations

import _thread
import contextvars
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import httpx
from prefect.client.orchestration import get_client
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelled

from flows.runs.deployed import is_deployed
from flows.runs.outcome import Outcome

POLL_SECONDS = 2.0
"""A request takes a millisecond of the server, so that asking this often costs a run nothing."""


@contextmanager
def interrupted_when_cancelled(outcome: Outcome) -> Iterator[None]:
    """Raise KeyboardInterrupt, as Ctrl-C, when the flow run is cancelled or deleted.

    `outcome.ended_in_prefect` then says which. Call it where SIGTERM interrupts.
    """
    context, is_main = FlowRunContext.get(), threading.current_thread() is threading.main_thread()
    if is_deployed() or not is_main or not context or not context.flow_run:
        yield
        return
    outcome.flow_run = context.flow_run.id
    watch = _Watch(context.flow_run.id, outcome)
    # The server's address is a setting of this context.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(watch.run,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.close()


def report_cancelled(flow_run: UUID) -> None:
    """Tell Prefect that a cancelled flow run has ended; it has heard of a crash, or of nothing."""
    with suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run, Cancelled(), force=True)


class _Watch:
    def __init__(self, flow_run: UUID, outcome: Outcome) -> None:
        self._flow_run, self._outcome = flow_run, outcome
        self._lock, self._closed = threading.Lock(), threading.Event()

    def run(self) -> None:
        with get_client(sync_client=True) as client:
            while not self._closed.wait(POLL_SECONDS):
                how = ""
                # A server that died is started again or done without.
                with suppress(httpx.HTTPError):
                    try:
                        state = client.read_flow_run(self._flow_run).state
                    except ObjectNotFound:
                        how = "deleted"
                    else:
                        is_over = state and (state.is_cancelling() or state.is_cancelled())
                        how = "cancelled" if is_over else ""
                if how:
                    self._interrupt(how)
                    return

    def _interrupt(self, how: str) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._outcome.ended_in_prefect = how
            # Not SIGINT, which a command in the background ignores.
            _thread.interrupt_main(signal.SIGTERM)

    def close(self) -> None:
        # An interrupt that comes later would hit something else.
        with self._lock:
            self._closed.set()
