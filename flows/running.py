"""`lce run`: check the request, bring a server up, run the flow, show the table."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from pathlib import Path

from rich.console import Console

from flows.daemons import answers
from flows.request import compile_request, prepared
from flows.results import show_results
from flows.selection import require_models, require_work, select_cells
from flows.settings import disk_full
from flows.temporary_server import TemporaryServer, client_settings, temporary_server
from lce_core.errors import LceError, ServiceError, StudyIncompleteError
from lce_core.execution import Execution
from lce_core.store.artifacts import Store

FULL_BYTES = 1 << 20
"""With less free disk space than this, any failure is put down to the disk."""
_QUIET = {"PREFECT_LOGGING_LEVEL": "CRITICAL", "PREFECT_LOGGING_TO_API_ENABLED": "false"}
"""Prefect's log lines would break the live view; failures are shown by the command itself."""


def run_study(study: str, execution: Execution, *, select: str, retry_failed: bool) -> None:
    """Computes what is missing of a study in this process and prints its overview.

    Raises:
      SpecError: the request is wrong; nothing was started or written.
      StoreError: the disk is full.
      ServiceError: Prefect's server does not start, or died.
      StudyIncompleteError: some cells failed; the overview was printed all the same.
    """
    request = compile_request(study, execution)
    plan, spec, where = request.plan, request.plan.study, request.where
    select_cells(plan, select)
    require_work(plan, where)
    require_models(plan, execution)
    store, tell = Store(execution.home), Console(stderr=True, highlight=False)
    store.prepare()
    if (before := store.source(spec.study)) not in (None, where):
        tell.print(
            f"note: study {spec.study!r} was last planned from {before}; its table now follows"
            f" {where}. Give studies that you compare different names.",
            soft_wrap=True,
        )
    tell.print(f"{spec.study}: {len(plan.cells):,} cells; starting Prefect's server")
    with temporary_server(execution.home) as server:
        os.environ.update(client_settings(execution.home, server.url), **_QUIET)
        from prefect.settings import PREFECT_API_URL, temporary_settings

        from flows.study import controlled_study  # seconds of imports

        api = temporary_settings({PREFECT_API_URL: server.wait_ready()})
        with api, prepared(request):
            try:
                result = controlled_study(
                    study=study,
                    select=select,
                    execution=execution.model_dump(mode="json"),
                    retry_failed=retry_failed,
                )
            except StudyIncompleteError:
                show_results(plan, execution.home, Console())
                raise
            except LceError:
                raise
            except Exception as error:
                if cause := _cause(error, execution.home, server):
                    raise cause from error
                raise
    show_results(plan, execution.home, Console())
    counts = ", ".join(f"{number} {status}" for status, number in sorted(result["cells"].items()))
    Console().print(f"{spec.study}: {result['computed']} steps computed; cells: {counts}")
    _show_next(spec.study)


def _cause(error: Exception, home: Path, server: TemporaryServer) -> LceError | None:
    """What stopped a run from outside: a full disk or a dead server; None for anything else."""
    # Prefect's own database lies there too, and fails in ways of its own.
    if shutil.disk_usage(home).free < FULL_BYTES:
        return disk_full(home, str(error))
    if not answers(f"{server.url}/health"):
        return ServiceError(
            f"Prefect's server at {server.url}",
            f"no answer ({type(error).__name__})",
            "a server that lives as long as the run",
            f"read {server.log}, then run again, which goes on where it was",
        )
    return None


def _show_next(study: str) -> None:
    command = sys.argv[0] if Path(sys.argv[0]).name == "lce" else "lce"
    with contextlib.suppress(ValueError):
        command = str(Path(command).relative_to(Path.cwd()))
    asked = (
        (f"report {study}", "one HTML page with tables and curves"),
        ('sql "FROM overview"', "any question over the views of the catalog"),
        ("up", "MLflow UI and Prefect UI on this machine"),
    )
    lines = (f"  {f'{command} {arguments}':<34} {what}" for arguments, what in asked)
    Console().print("Next:", *lines, sep="\n", highlight=False, soft_wrap=True)
