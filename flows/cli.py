"""The command `lce`.

Commands import what they need when they run: `lce sql` never loads Prefect, `lce plan` never torch.
Exit codes: 0 done; 1 some cells failed; 2 the request itself is wrong; 3 what it runs on failed (a
server, a worker, the store, the disk), or lce has a defect, whose traceback is kept in a file.
"""

from __future__ import annotations

import os
import signal
import sys

import typer

from flows.commands.computing import run, worker
from flows.commands.keeping import export, gc, lock, verify
from flows.commands.planning import plan, status, watch
from flows.commands.plugins import benchmarks, check, fetch, methods, models, new, recipes
from flows.commands.results import claims, dashboard, prompt, rebuild, report, sql
from flows.commands.rope import rope
from flows.commands.services import doctor, down, up
from flows.terminal import say
from lce_core.errors import (
    DefectError,
    LceError,
    ProcessFailedError,
    ServiceError,
    StoreError,
    StudyIncompleteError,
    WorkerLostError,
)
from lce_core.terminal import guard_terminal

app = typer.Typer(
    name="lce",
    help="A controlled study of long-context extension: run it, ask it, rerun it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

# In the order of `lce --help`.
for command in (
    *(run, worker, plan, status, watch, lock, verify, gc),
    *(sql, report, claims, prompt, dashboard, up, down, doctor),
    *(methods, benchmarks, recipes, models, fetch, export, new, check),
):
    app.command()(command)
app.add_typer(rebuild, name="rebuild")
app.add_typer(rope, name="rope")

INFRASTRUCTURE = (ServiceError, StoreError, WorkerLostError, ProcessFailedError, DefectError)
"""Errors that no change of the request cures."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, which typer turns the interrupt into."""


def main() -> None:
    """Entry point: turns errors made on purpose into one message and an exit code."""
    # As Ctrl-C, from the first moment on: Slurm and Kubernetes send it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    guard_terminal()
    try:
        app()
        code: str | int | None = 0
    except SystemExit as end:
        code = end.code
        if code == INTERRUPTED:
            say("lce: interrupted; the same command goes on where it was", err=True)
    except LceError as error:
        say(f"lce: {error}", err=True)
        code = exit_code(error)
    except Exception as error:  # noqa: BLE001 - no state of a home may end in a traceback
        told = _explained(error)
        typer.echo(f"lce: {told}", err=True)
        code = exit_code(told)
    if _lost_its_services():
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def _lost_its_services() -> bool:
    """Whether a server or a cluster died whose client, as Python ends, would wait for it or crash.

    Prefect's asks for minutes; Ray's has been seen to end with a segmentation fault.
    """
    running = sys.modules.get("flows.running")
    cluster = sys.modules.get("tasks.ray_engine.cluster")
    return bool((running and running.server_is_gone) or (cluster and cluster.HEAD.is_lost))


def _explained(error: Exception) -> LceError:
    from flows.settings import home
    from lce_core.store.unforeseen import explained

    return explained(error, home())


def exit_code(error: LceError) -> int:
    """What a command that ends with `error` tells the shell."""
    if isinstance(error, StudyIncompleteError):
        return 1
    if isinstance(error, INFRASTRUCTURE):
        return 3
    return 2
