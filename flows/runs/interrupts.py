"""Interrupt `lce run` at SIGTERM, and when its flow run is cancelled or deleted in Prefect."""

import _thread
import contextvars
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.context import FlowRunContext
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.states import Cancelled

from flows.runs.scheduling import Outcome

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
    flow_run = outcome.flow_run = context.flow_run.id
    lock, closed = threading.Lock(), threading.Event()

    def watch() -> None:
        with get_client(sync_client=True) as client:
            how = ""
            while not how and not closed.wait(POLL_SECONDS):
                how = _how_it_ended(client, flow_run)
        with lock:
            if how and not closed.is_set():
                outcome.ended_in_prefect = how
                # Use SIGTERM, because shells make background commands ignore SIGINT.
                _thread.interrupt_main(signal.SIGTERM)

    # The server's address is a setting of this context, so the thread needs a copy of it.
    thread = threading.Thread(target=contextvars.copy_context().run, args=(watch,), daemon=True)
    thread.start()
    try:
        yield
    finally:
        with lock:  # send no interrupt after this: a late one would hit unrelated code
            closed.set()


def _how_it_ended(client: SyncPrefectClient, flow_run: UUID) -> str:
    """Return "cancelled" or "deleted" if a user did that to the flow run, else ""."""
    # Ignore connection errors: a run whose server has died continues without it.
    with suppress(httpx.HTTPError):
        try:
            state = client.read_flow_run(flow_run).state
        except ObjectNotFound:
            return "deleted"
        if state and (state.is_cancelling() or state.is_cancelled()):
            return "cancelled"
    return ""


def report_cancelled(flow_run: UUID) -> None:
    """Set a flow run that a user had cancelled to Cancelled, instead of crashed or running."""
    with suppress(httpx.HTTPError, PrefectException), get_client(sync_client=True) as client:
        client.set_flow_run_state(flow_run, Cancelled(), force=True)
