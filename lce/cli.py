"""Entry point of the command `lce`.

Each command imports its modules when it runs: `lce sql` never loads Prefect, `lce plan` never loads
torch.

Exit codes:
  0: the command succeeded.
  1: some cells failed, or a check found a difference.
  2: the request is wrong.
  3: the infrastructure failed (a server, a worker, the store, the disk), or lce has a defect. The
    traceback of a defect is written to a file, which the message names.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer

from flows.terminal import ProcessEnd, say
from lce.commands.keeping import certify, export, gc, import_, lock, pack, verify
from lce.commands.plugins import (
    benchmarks,
    check,
    corpora,
    fetch,
    methods,
    models,
    new,
    recipes,
    schema,
)
from lce.commands.results import catalog, claims, dashboard, diff, prompt, rebuild, report, sql
from lce.commands.rope import rope
from lce.commands.services import doctor, down, up
from lce.commands.studies import join, plan, run, status, watch, worker
from lce_core.environment import restrict
from lce_core.errors import (
    DefectError,
    LceError,
    ProcessFailedError,
    RunEndedError,
    ServiceError,
    StoreError,
    StudyIncompleteError,
    WorkerLostError,
)
from lce_core.terminal import guard_terminal

GROUPS: dict[str, dict[Callable[..., Any], str]] = {
    "Run a study": {
        run: "lce run toy --select method=yarn,method=pi",
        worker: "lce worker toy --data-folder pg19=/shared/books",
        join: "lce join accelerate.yaml --machine-rank 1",
        plan: "lce plan toy --power",
        status: "lce status toy",
        watch: "lce watch toy",
    },
    "Read results": {
        report: "lce report toy --format md",
        claims: "lce claims toy --method yarn",
        sql: 'lce sql "SELECT * FROM overview" --format csv',
        catalog: "lce catalog --parquet tables",
        diff: "lce diff lce-home other-home --study toy",
        prompt: "lce prompt CELL 0",
        dashboard: "lce dashboard --port 8501",
    },
    "Keep and check results": {
        lock: "lce lock toy --file toy.lock",
        verify: "lce verify toy --sample 5%",
        gc: "lce gc --dry-run",
        export: "lce export toy yarn-s0 --select variant=yarn-tuned,seed=0",
        certify: "lce certify yarn-s0 --with vllm --with llama.cpp",
        pack: "lce pack toy --out parcels",
        import_: "lce import results/*.tar.gz",
    },
    "Servers": {
        up: "lce up --port 4200",
        down: "lce down",
        doctor: "lce doctor",
    },
    "Methods, benchmarks, models and text": {
        methods: "lce methods --json",
        benchmarks: "lce benchmarks --markdown",
        models: "lce models",
        corpora: "lce corpora",
        recipes: "lce recipes --markdown",
        schema: "lce schema",
        fetch: "lce fetch smollm2_135m_q4",
        new: "lce new method root",
        check: "lce check plugins",
    },
}
"""Commands by task, in the order of `lce --help`, each with an example for its own help."""
SUBCOMMANDS = {
    rebuild: ("rebuild", "Keep and check results"),
    rope: ("rope", "Methods, benchmarks, models and text"),
}

app = typer.Typer(
    name="lce",
    help="Run, query and reproduce controlled studies of long-context extension.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for group, members in GROUPS.items():
    for command, example in members.items():
        name = command.__name__.rstrip("_")  # `import` is a keyword of Python
        app.command(name, rich_help_panel=group, epilog=f"Example: {example}")(command)
for commands, (name, group) in SUBCOMMANDS.items():
    app.add_typer(commands, name=name, rich_help_panel=group)


def _print_version(wanted: bool) -> None:
    if wanted:
        say(f"lce {version('lce')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    pass


INFRASTRUCTURE = (
    ServiceError,
    StoreError,
    WorkerLostError,
    RunEndedError,
    ProcessFailedError,
    DefectError,
)
"""Errors of servers, workers, the store or lce itself; they lead to exit code 3."""

INTERRUPTED = 130
"""Exit code after Ctrl-C; typer turns KeyboardInterrupt into SystemExit with this code."""


def main() -> None:
    """Run the command line; print an error as one message, and exit with a code of the module."""
    restrict(os.environ)
    # Slurm and Kubernetes send SIGTERM to stop a job. Treat it as Ctrl-C from the start.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    guard_terminal()
    end = ProcessEnd()
    try:
        app(obj=end)
        code: str | int | None = 0
    except SystemExit as ended:
        code = ended.code
        if code == INTERRUPTED:
            say("lce: interrupted; the same command continues where it stopped", err=True)
    except LceError as error:
        say(f"lce: {error}", err=True)
        code = exit_code(error)
    except Exception as error:  # noqa: BLE001 - users get a message, never a traceback
        explained = _explained(error)
        say(f"lce: {explained}", err=True)
        code = exit_code(explained)
    if end.skips_handlers:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def _explained(error: Exception) -> LceError:
    from flows.settings import home_path
    from lce_core.store.failures import explained

    return explained(error, home_path())


def exit_code(error: LceError) -> int:
    if isinstance(error, StudyIncompleteError):
        return 1
    if isinstance(error, INFRASTRUCTURE):
        return 3
    return 2


if __name__ == "__main__":
    main()
