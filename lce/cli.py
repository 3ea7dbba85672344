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

import os
import signal
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Annotated, Any

import typer

from flows.terminal import ProcessEnd, say
from lce.commands import keeping, plugins, results, rope, services, studies
from lce_core import errors
from lce_core.environment import restrict
from lce_core.terminal import guard_terminal

GROUPS: dict[str, dict[Callable[..., Any], str]] = {
    "Run a study": {
        studies.run: "lce run toy --select method=yarn,method=pi",
        studies.worker: "lce worker toy --data-folder pg19=/shared/books",
        studies.join: "lce join accelerate.yaml --machine-rank 1",
        studies.plan: "lce plan toy --power",
        studies.status: "lce status toy",
        studies.watch: "lce watch toy",
    },
    "Read results": {
        results.report: "lce report toy --format md",
        results.claims: "lce claims toy --method yarn",
        results.sql: 'lce sql "SELECT * FROM overview" --format csv',
        results.catalog: "lce catalog --parquet tables",
        results.diff: "lce diff lce-home other-home --study toy",
        results.prompt: "lce prompt CELL 0",
        results.dashboard: "lce dashboard --port 8501",
    },
    "Keep and check results": {
        keeping.lock: "lce lock toy --file toy.lock",
        keeping.verify: "lce verify toy --sample 5%",
        keeping.gc: "lce gc --dry-run",
        keeping.export: "lce export toy yarn-s0 --select variant=yarn-tuned,seed=0",
        keeping.certify: "lce certify yarn-s0 --with vllm --with llama.cpp",
        keeping.pack: "lce pack toy --out parcels",
        keeping.import_: "lce import results/*.tar.gz",
    },
    "Servers": {
        services.up: "lce up --port 4200",
        services.down: "lce down",
        services.doctor: "lce doctor",
    },
    "Methods, benchmarks, models and text": {
        plugins.methods: "lce methods --json",
        plugins.benchmarks: "lce benchmarks --markdown",
        plugins.models: "lce models",
        plugins.corpora: "lce corpora",
        plugins.recipes: "lce recipes --markdown",
        plugins.schema: "lce schema",
        plugins.fetch: "lce fetch smollm2_135m_q4",
        plugins.new: "lce new method root",
        plugins.check: "lce check plugins",
    },
}
"""Commands by task, in the order of `lce --help`, each with an example for its own help."""
SUBCOMMANDS = {
    results.rebuild: ("rebuild", "Keep and check results"),
    rope.rope: ("rope", "Methods, benchmarks, models and text"),
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
    errors.ServiceError,
    errors.StoreError,
    errors.WorkerLostError,
    errors.RunEndedError,
    errors.ProcessFailedError,
    errors.DefectError,
)

INTERRUPTED = 130
"""Exit code after Ctrl-C; typer turns KeyboardInterrupt into SystemExit with this code."""


def main() -> None:
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
    except Exception as error:  # noqa: BLE001 - users get a message, never a traceback
        if isinstance(error, errors.LceError):
            shown = error
        else:
            from flows.settings import home_path
            from lce_core.store.failures import explained

            shown = explained(error, home_path())
        say(f"lce: {shown}", err=True)
        code = exit_code(shown)
    if end.skips_handlers:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)
    sys.exit(code)


def exit_code(error: errors.LceError) -> int:
    if isinstance(error, errors.StudyIncompleteError):
        return 1
    if isinstance(error, INFRASTRUCTURE):
        return 3
    return 2


if __name__ == "__main__":
    main()
