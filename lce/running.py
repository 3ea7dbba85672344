"""`lce run`: check the request, start a Prefect server, run the flow, print the results table."""

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flows.run_context import CURRENT, RunContext
from flows.runs.results import show_results
from flows.servers.temporary_server import (
    MAX_STARTS,
    TemporaryServer,
    client_settings,
    temporary_server,
)
from flows.settings import mlflow_server
from flows.terminal import ProcessEnd, Terminal
from flows.work import RunOptions, Work, preflight
from lce_core.errors import LceError, ServiceError, StudyIncompleteError
from lce_core.execution import Execution
from lce_core.store.failures import FULL_BYTES, disk_full
from lce_core.study.plan import StudyPlan

_CLIENT = {
    # Prefect's log lines would break the live progress view. The command prints failures itself.
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
    "PREFECT_LOGGING_INTERNAL_LEVEL": "CRITICAL",
    # The client retries a failed request after 2 and 4 s. At exit, Prefect reports the end of the
    # run in two requests, which take 12 s if the server has died.
    "PREFECT_CLIENT_MAX_RETRIES": "2",
    "PREFECT_CLIENT_RETRY_JITTER_FACTOR": "0",
}


def run_study(
    study: str, execution: Execution, options: RunOptions, end: ProcessEnd | None = None
) -> None:
    tell = Terminal(stderr=True, highlight=False)
    (work,) = preflight([study], execution, options)
    plan, home = work.request.plan, execution.home
    name = plan.study.study
    for line in (*work.chosen, *work.notes):
        tell.print(line, soft_wrap=True, markup=False)
    if not work.units and not work.look:
        _record(work, home)
        return
    tell.print(f"{name}: {len(plan.cells):,} cells; starting Prefect's server")
    with temporary_server(home) as server:
        if server.secret:  # the user's settings are for other servers
            for name in [name for name in os.environ if name.startswith("PREFECT_")]:
                del os.environ[name]
        os.environ.update(client_settings(home, server.url, server.secret), **_CLIENT)
        try:
            result = _result(work, options, server, end or ProcessEnd())
        except StudyIncompleteError:
            show_results(plan, home, Terminal())
            raise
    _show(plan, home, result["computed"], result["cells"])


def _record(work: Work, home: Path) -> None:
    """Update catalog and MLflow of a study without missing steps, which needs no server."""
    from tasks.projections import record

    plan = work.request.plan
    counts = record(home, plan.study.study, mlflow_server(home))
    if work.failed_before:
        show_results(plan, home, Terminal())
        raise StudyIncompleteError(plan.study.study, work.failed_before, 0)
    _show(plan, home, 0, counts)


def _show(plan: StudyPlan, home: Path, computed: int, cells: Mapping[str, int]) -> None:
    from tasks.tracking import pages_of

    show_results(plan, home, Terminal())
    counts = ", ".join(f"{number} {status}" for status, number in sorted(cells.items()))
    study = plan.study.study
    Terminal().print(f"{study}: {computed} steps computed; cells: {counts}")
    pages = pages_of(home, study)
    where = "MLflow UI and Prefect UI on this machine"
    if pages:
        charts = f"{'MLflow' if pages.team else 'then'} {pages.methods}"
        where = f"{'Prefect UI' if pages.team else where}; {charts}"
    command = sys.argv[0] if Path(sys.argv[0]).name == "lce" else "lce"
    with contextlib.suppress(ValueError):
        command = str(Path(command).relative_to(Path.cwd()))
    suggested = (
        (f"report {study}", "one HTML page with tables and curves"),
        ('sql "FROM overview"', "any question over the views of the catalog"),
        ("up", where),
    )
    lines = (f"  {f'{command} {arguments}':<34} {what}" for arguments, what in suggested)
    Terminal().print("Next:", *lines, sep="\n", highlight=False, soft_wrap=True)


def _result(
    work: Work, options: RunOptions, server: TemporaryServer, end: ProcessEnd
) -> dict[str, Any]:
    """Run the flow and return its result, even if the Prefect server dies during the run."""
    import flows.study  # noqa: F401 - takes seconds, in which the server starts

    try:
        for _ in range(MAX_STARTS if server.started_here else 1):
            server.wait_ready()
            run = RunContext([work])
            try:
                result = _attempt(run, options, server)
            finally:
                end.skips_handlers |= run.pool.head.is_lost
            if result is not None:
                return result
        raise ServiceError(
            f"Prefect's server at {server.url}",
            "no answer",
            "a server that answers until the run is registered",
            f"read {server.log}, then run the same command again; finished steps are in the store",
        )
    finally:
        end.skips_handlers |= not server.answers()


def _attempt(
    run: RunContext, options: RunOptions, server: TemporaryServer
) -> dict[str, Any] | None:
    """Call the flow once and return its result; None if the server died before the flow began."""
    from prefect.exceptions import Abort, ObjectNotFound

    from flows.runs.interrupts import report_cancelled
    from flows.study import controlled_study

    home, outcome = run.execution.home, run.outcome
    token = CURRENT.set(run)
    try:
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
        # Prefect's client raises one of these errors when a user cancelled or deleted the flow run,
        # because the client then cannot find the flow run or set its state.
        if not outcome.ended_in_prefect and isinstance(error, KeyboardInterrupt):
            raise
        if outcome.flow_run and outcome.ended_in_prefect == "cancelled":
            report_cancelled(outcome.flow_run)
        raise ServiceError(
            f"the flow run at {server.url}",
            f"a run {outcome.ended_in_prefect or 'cancelled or deleted'} in Prefect while the study"
            " ran",
            "a flow run that exists until the study finishes",
            "run the same command again: finished steps are in the store and are not recomputed",
        ) from None
    except Exception as error:
        if getattr(getattr(error, "response", None), "status_code", None) in (401, 403):
            raise ServiceError(
                f"Prefect's server at {server.url}",
                "a refusal of this run's credentials (HTTP 401 or 403)",
                "a server that accepts these credentials",
                "set PREFECT_API_AUTH_STRING or PREFECT_API_KEY for this server, or unset"
                " PREFECT_API_URL, so that `lce run` starts its own server; finished steps are in"
                " the store",
            ) from None
        # Prefect's database is on the same disk, but its errors do not say that the disk is full.
        if shutil.disk_usage(home).free < FULL_BYTES:
            raise disk_full(home, str(error)) from error
        if error is outcome.error or server.answers():
            raise
        # Only the connection failed. If the flow's body finished, use the outcome it recorded.
        if outcome.error is not None or outcome.result is not None:
            text = (
                f"Prefect's server at {server.url} died: its UI does not show that the run ended."
            )
            Terminal(stderr=True, highlight=False).print(text, style="yellow", soft_wrap=True)
        if outcome.error:
            raise outcome.error from None
        return outcome.result
    finally:
        CURRENT.reset(token)
