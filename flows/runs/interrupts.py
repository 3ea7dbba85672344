"""Interrupt `lce run` at SIGTERM, and when its flow run is cancelled or deleted in Prefect."""

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

from flows.process_end import Outcome

POLL_SECONDS = 2.0
"""A request takes about a millisecond."""


def is_deployed() -> bool:
    """Return True if a deployment created the current flow run.

    `prefect.runtime.deployment.id` queries the server, which may have died.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.deployment_id is not None


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at SIGTERM, except in a deployment, where Prefect handles it.

    Slurm, Kubernetes and `docker stop` send SIGTERM some seconds before they kill a process.
    Prefect's own handler would wait for running tasks, which would meanwhile retry units.
    """
    if is_deployed() or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def interrupted_when_cancelled(outcome: Outcome) -> Iterator[None]:
    """Raise KeyboardInterrupt in the block when the flow run is cancelled or deleted.

    Prefect itself stops only flow runs that a runner or worker started. The flow of `lce run`, in
    the user's own process, gets no signal, so a thread polls the flow run's state. It sets
    `outcome.ended_in_prefect` and sends SIGTERM to the main thread, so use this inside
    `sigterm_interrupts`.
    """
    context, is_main = FlowRunContext.get(), threading.current_thread() is threading.main_thread()
    if is_deployed() or not is_main or not context or not context.flow_run:
        yield
        return
    outcome.flow_run = context.flow_run.id
    watch = _Watch(context.flow_run.id, outcome)
    # The server's address is a setting of this context, so the thread needs a copy of it.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(watch.run,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        watch.close()


def report_cancelled(flow_run: UUID) -> None:
    """Set a flow run that a user had cancelled to Cancelled, instead of crashed or running."""
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
                # Ignore connection errors: a run whose server has died continues without it.
                with suppress(httpx.HTTPError):
                    try:
                        state = client.read_flow_run(self._flow_run).state
                    except ObjectNotFound:
                        how = "deleted"
                    else:
                        is_cancelled = state and (state.is_cancelling() or state.is_cancelled())
                        how = "cancelled" if is_cancelled else ""
                if how:
                    self._interrupt(how)
                    return

    def _interrupt(self, how: str) -> None:
        with self._lock:
            if self._closed.is_set():
                return
            self._outcome.ended_in_prefect = how
            # Use SIGTERM, because shells make background commands ignore SIGINT.
            _thread.interrupt_main(signal.SIGTERM)

    def close(self) -> None:
        # Send no interrupt after this. A late one would hit unrelated code.
        with self._lock:
            self._closed.set()
