"""`lce run`: check the request, start a server, run the flow, print the table."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from flows.process_end import ProcessEnd
from flows.run_context import RunContext, current
from flows.runs.results import show_results
from flows.servers.temporary_server import TemporaryServer, client_settings, temporary_server
from flows.terminal import Terminal
from flows.work import RunOptions, Work, preflight
from lce_core.errors import LceError, ServiceError, StudyIncompleteError
from lce_core.execution import Execution
from lce_core.store.failures import disk_full
from lce_core.store.unforeseen import FULL_BYTES

MAX_START_ATTEMPTS = 3
"""Attempts to start the flow, when the server dies before it has registered the run."""
_CLIENT = {
    # Prefect's log lines would break the live view; the command itself prints failures.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    # The client retries a failed request after 2, 4 and 8 s. Together that is longer than a new
    # server takes to start. Prefect reports the end of a run twice, so an exit waits at most 30 s.
    "PREFECT_CLIENT_MAX_RETRIES": "3",
    "PREFECT_CLIENT_RETRY_JITTER_FACTOR": "0",
}


def run_study(
    study: str, execution: Execution, options: RunOptions, end: ProcessEnd | None = None
) -> None:
    """Compute what is missing of a study in this process and print its overview.

    Raises:
      SpecError: if the request is wrong; nothing was started or written.
      StoreError: if the disk is full.
      ServiceError: if Prefect's server does not start, or cannot register the run.
      StudyIncompleteError: if some cells failed; the overview was printed nevertheless.
    """
    tell = Terminal(stderr=True, highlight=False)
    (work,) = preflight([study], execution, options)
    plan, home = work.request.plan, execution.home
    name = plan.study.study
    for line in (*work.chosen, *work.notes):
        tell.print(line, soft_wrap=True, markup=False)
    tell.print(f"{name}: {len(plan.cells):,} cells; starting Prefect's server")
    note = partial(tell.print, style="yellow", markup=False, soft_wrap=True)
    with temporary_server(home, note) as server:
        how = client_settings(home, server.url, server.secret)
        os.environ.update(how, **_CLIENT)
        from prefect.settings import PREFECT_API_URL, temporary_settings

        with temporary_settings({PREFECT_API_URL: server.wait_ready()}):
            try:
                result = _result(work, options, server, note, end or ProcessEnd())
            except StudyIncompleteError:
                show_results(plan, home, Terminal())
                raise
    show_results(plan, home, Terminal())
    counts = ", ".join(f"{number} {status}" for status, number in sorted(result["cells"].items()))
    Terminal().print(f"{name}: {result['computed']} steps computed; cells: {counts}")
    _show_next(name, home)


def _result(
    work: Work,
    options: RunOptions,
    server: TemporaryServer,
    note: Callable[[str], None],
    end: ProcessEnd,
) -> dict[str, Any]:
    """Run the flow and return its result, even if Prefect's server dies during the run.

    Raises:
      LceError: if the flow raises it.
      StoreError: if the disk is full.
      ServiceError: if the server died before the run was registered, and did not come back.
    """
    try:
        for _ in range(MAX_START_ATTEMPTS):
            run = RunContext([work])
            try:
                result = _attempt(run, options, server, note)
            finally:
                end.skips_handlers |= run.pool.head.is_lost
            if result is not None:
                return result
            if not server.comes_back():
                break
        raise _never_registered(server)
    finally:
        end.skips_handlers |= not server.answers()


def _attempt(
    run: RunContext, options: RunOptions, server: TemporaryServer, note: Callable[[str], None]
) -> dict[str, Any] | None:
    """Call the flow once. Return None if the server died before it registered the run."""
    from prefect.exceptions import Abort, ObjectNotFound

    from flows.runs.cancelled import report_cancelled
    from flows.study import controlled_study  # this import takes seconds

    home, outcome = run.execution.home, run.outcome
    try:
        with current(run):
            # The flow takes its work from `run`; Prefect shows these parameters.
            result: dict[str, Any] = controlled_study(
                study=run.works[0].request.study,
                select=options.select,
                execution=run.execution.model_dump(mode="json"),
                retry_failed=options.retry_failed,
                budget=options.budget,
            )
        return result
    except LceError:
        raise
    except (KeyboardInterrupt, Abort, ObjectNotFound) as error:
        # When the flow run was cancelled or deleted, Prefect's client raises one of these
        # errors: it finds no flow run, or may not change its state.
        if not outcome.ended_in_prefect and isinstance(error, KeyboardInterrupt):
            raise
        if outcome.flow_run and outcome.ended_in_prefect == "cancelled":
            report_cancelled(outcome.flow_run)
        raise _ended_in_prefect(server, outcome.ended_in_prefect) from None
    except Exception as error:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise _refused(server) from None
        # Prefect's database is on the same disk, and its errors do not name a full disk.
        if shutil.disk_usage(home).free < FULL_BYTES:
            raise disk_full(home, str(error)) from error
        if error is outcome.error or not server.was_lost:
            raise
        # The client lost the server, but the flow's body may have finished: use its kept outcome.
        if outcome.error is not None or outcome.result is not None:
            note(f"Prefect's server at {server.url} is gone: it shows no end of this run.")
        if outcome.error:
            raise outcome.error from None
        return outcome.result


def _ended_in_prefect(server: TemporaryServer, how: str) -> ServiceError:
    return ServiceError(
        f"the flow run at {server.url}",
        f"{how or 'cancelled or deleted'} in Prefect while the study ran",
        "a flow run that lasts as long as the study",
        "run again: it continues where it stopped, since finished steps are in the store",
    )


def _refused(server: TemporaryServer) -> ServiceError:
    return ServiceError(
        f"Prefect's server at {server.url}",
        "a refusal of this run's credentials (HTTP 401 or 403)",
        "a server that lets this run in",
        "set PREFECT_API_AUTH_STRING or PREFECT_API_KEY for it, or unset PREFECT_API_URL;"
        " finished steps are in the store",
    )


def _never_registered(server: TemporaryServer) -> ServiceError:
    return ServiceError(
        f"Prefect's server at {server.url}",
        "no answer",
        "a server that registers the start of the run",
        f"read {server.log}, then run again: it continues where it stopped",
    )


def _show_next(study: str, home: Path) -> None:
    from tasks.tracking import pages_of

    pages = pages_of(home, study)
    where = f"MLflow UI and Prefect UI on this machine{'; then ' + pages.methods if pages else ''}"
    command = sys.argv[0] if Path(sys.argv[0]).name == "lce" else "lce"
    with contextlib.suppress(ValueError):
        command = str(Path(command).relative_to(Path.cwd()))
    asked = (
        (f"report {study}", "one HTML page with tables and curves"),
        ('sql "FROM overview"', "any question over the views of the catalog"),
        ("up", where),
    )
    lines = (f"  {f'{command} {arguments}':<34} {what}" for arguments, what in asked)
    Terminal().print("Next:", *lines, sep="\n", highlight=False, soft_wrap=True)
