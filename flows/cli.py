"""The command `lce`.

Commands import what they need when they run: `lce sql` never loads Prefect, `lce plan` never torch.
Exit codes: 0 done; 1 some cells failed; 2 the request itself is wrong; 3 what it runs on failed (a
server, a worker, the store, the disk).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.rope.commands import rope
from lce_core.errors import (
    LceError,
    ProcessFailedError,
    ServiceError,
    StoreError,
    StudyIncompleteError,
    WorkerLostError,
)
from lce_core.registry import MARK

app = typer.Typer(
    name="lce",
    help="A controlled study of long-context extension: run it, ask it, rerun it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
rebuild = typer.Typer(help="Rebuilds a projection from the store.", no_args_is_help=True)
app.add_typer(rebuild, name="rebuild")
app.add_typer(rope, name="rope")

NAMES_OF_SERVICES = {"server": "Prefect UI", "mlflow": "MLflow UI", "worker": "worker"}

INFRASTRUCTURE = (ServiceError, StoreError, WorkerLostError, ProcessFailedError)
"""Errors that no change of the request cures."""

INTERRUPTED = 130
"""Exit code after Ctrl-C, which typer turns the interrupt into."""

Study = Annotated[str, typer.Argument(help="A shipped study's name, or a study file.")]
ReportForm = Literal["html", "md"]
Slots = Annotated[int | None, typer.Option(help="Steps at a time: one per GPU or CPU core.")]
Device = Annotated[str | None, typer.Option(help="auto, cpu or cuda.")]
Processes = Annotated[int | None, typer.Option(help="Processes of one training run.")]
MicroBatch = Annotated[int | None, typer.Option(help="Most tokens in one forward pass.")]
ModelFolder = Annotated[
    list[str], typer.Option("--model-folder", help="NAME=FOLDER with a base model's weights.")
]
DataFolder = Annotated[
    list[str],
    typer.Option(
        "--data-folder", help="NAME=FOLDER with a data set, or NAME=hub:OWNER/NAME@COMMIT."
    ),
]
Plugins = Annotated[
    list[Path],
    typer.Option("--plugins", help="Folder with methods/, benchmarks/, ... of your own."),
]
ExecutionFile = Annotated[
    Path | None, typer.Option("--execution", help="YAML file with keys of Execution.")
]


def main() -> None:
    """Entry point: turns errors made on purpose into one message and an exit code."""
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            typer.echo("lce: interrupted; the same command goes on where it was", err=True)
        raise
    except LceError as error:
        typer.echo(f"lce: {error}", err=True)
        sys.exit(exit_code(error))


def exit_code(error: LceError) -> int:
    """What a command that ends with `error` tells the shell."""
    if isinstance(error, StudyIncompleteError):
        return 1
    if isinstance(error, INFRASTRUCTURE):
        return 3
    return 2


@app.command()
def run(
    study: Study,
    select: Annotated[str, typer.Option(help="Only these cells: axis=value,...")] = "",
    retry_failed: Annotated[bool, typer.Option(help="Try permanent failures again.")] = False,
    slots: Slots = None,
    device: Device = None,
    processes: Processes = None,
    micro_batch_tokens: MicroBatch = None,
    model_folder: ModelFolder = [],  # noqa: B006 - typer wants the literal default
    data_folder: DataFolder = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
    execution: ExecutionFile = None,
) -> None:
    """Computes what is missing of a study, then prints its overview."""
    from flows.running import run_study

    how = _execution(
        execution,
        slots=slots,
        device=device,
        processes=processes,
        micro_batch_tokens=micro_batch_tokens,
        model_folder=model_folder,
        data_folder=data_folder,
        plugins=plugins,
    )
    run_study(study, how, select=select, retry_failed=retry_failed)


@app.command()
def plan(
    study: Study,
    json_form: Annotated[bool, typer.Option("--json", help="Every cell, as JSON.")] = False,
    cells: Annotated[bool, typer.Option("--cells", help="Every cell, a line each.")] = False,
    device_type: Annotated[
        str | None,
        typer.Option(help="Priced for: a100, h100, h200 or cpu, if not for this machine."),
    ] = None,
    model_folder: ModelFolder = [],  # noqa: B006
    data_folder: DataFolder = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
    execution: ExecutionFile = None,
) -> None:
    """Says what a run would compute and why; runs nothing, changes no result."""
    from flows import planning

    how = _execution(execution, model_folder=model_folder, data_folder=data_folder, plugins=plugins)
    found = planning.inspect_study(study, how)
    if json_form:
        typer.echo(json.dumps(planning.as_json(found, device_type), indent=1))
    else:
        planning.show(found, every_cell=cells, device=device_type)


@app.command()
def status(
    study: Study,
    model_folder: ModelFolder = [],  # noqa: B006
    data_folder: DataFolder = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Says how far a study is: cells by state, what runs now, what failed."""
    from flows import planning

    how = _execution(None, model_folder=model_folder, data_folder=data_folder, plugins=plugins)
    planning.show_status(planning.inspect_study(study, how))


@app.command()
def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the catalog's views.")],
    form: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """Answers a reading SQL statement over the results catalog."""
    from flows.settings import home
    from tasks.projections import answer

    typer.echo(answer(home(), query, form).rstrip("\n"))


@app.command()
def report(
    study: Study,
    form: Annotated[
        ReportForm,
        typer.Option("--format", help="html: one page with its script; md: a folder of Markdown."),
    ] = "html",
    out: Annotated[
        Path | None, typer.Option(help="The HTML file, or the folder, to write.")
    ] = None,
) -> None:
    """Writes the study's report: one HTML page, or Markdown with pictures and scores."""
    from flows.settings import home, study_name
    from tasks.projections import catalog_path

    study = study_name(study)
    name = f"{study}.html" if form == "html" else study
    path = (out or home() / "reports" / name).absolute()
    # The dashboards only know the catalog; a process of their own keeps it so.
    asked = ["--catalog", str(catalog_path(home())), "--study", study, "--out", str(path)]
    done = subprocess.run([sys.executable, "-m", "dashboards", *asked, "--format", form])
    if done.returncode:
        raise typer.Exit(done.returncode)


@app.command()
def up(
    port: Annotated[int, typer.Option(help="Port of the Prefect server.")] = 4200,
    mlflow_port: Annotated[int, typer.Option(help="Port of the MLflow UI.")] = 5000,
) -> None:
    """Starts Prefect's server, a worker and the MLflow UI on this machine's loopback."""
    from flows import services
    from flows.settings import home

    for service in services.up(home(), {"server": port, "mlflow": mlflow_port}):
        shown = (service.url or "running").removesuffix("/api")
        typer.echo(f"{NAMES_OF_SERVICES[service.name]:<10} {shown}")
    typer.echo("Now: prefect deployment run controlled-study (in this folder). Stop: lce down")


@app.command()
def down() -> None:
    """Stops what `lce up` started."""
    from flows import services
    from flows.settings import home

    stopped = services.down(home())
    typer.echo(f"stopped: {', '.join(stopped) or 'nothing was running'}")


@app.command()
def doctor() -> None:
    """Checks versions, folders, servers and leftovers; exits with 1 if something is wrong."""
    from flows import services
    from flows.settings import home

    checks = services.doctor(home())
    for check in checks:
        typer.echo(f"{'ok  ' if check.ok else 'FAIL'} {check.name}: {check.detail}")
        if not check.ok:
            typer.echo(f"     {check.remedy}")
    if not all(check.ok for check in checks):
        raise typer.Exit(1)


@app.command()
def methods(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="All parameters and sources, as docs/methods.md.")
    ] = False,
    exports: Annotated[
        bool, typer.Option("--exports", help="How each is exported, as in docs/checkpoints.md.")
    ] = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Lists the context-extension methods."""
    from flows import documents, listing

    _execution(None, plugins=plugins)
    if exports:
        typer.echo(documents.exports_table(), nl=False)
    elif markdown:
        typer.echo(documents.methods_markdown(), nl=False)
    else:
        listing.methods()


@app.command()
def benchmarks(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Profiles, cost and sources, as docs/benchmarks.md.")
    ] = False,
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Lists the benchmarks."""
    from flows import documents, listing

    _execution(None, plugins=plugins)
    if markdown:
        typer.echo(documents.benchmarks_markdown(), nl=False)
    else:
        listing.benchmarks()


@app.command()
def recipes(
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Every value with its source, as docs/recipes.md.")
    ] = False,
) -> None:
    """Lists the published training recipes that a study may name."""
    from flows import documents, listing

    if markdown:
        typer.echo(documents.recipes_markdown(), nl=False)
    else:
        listing.recipes()


@app.command()
def models(plugins: Plugins = []) -> None:  # noqa: B006
    """Lists the base models."""
    from flows import listing

    _execution(None, plugins=plugins)
    listing.models()


@app.command()
def fetch(
    name: Annotated[
        str, typer.Argument(help="A base model of `lce models`, or hub:OWNER/NAME@COMMIT.")
    ],
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Brings a base model to this machine, once; goes on where it was interrupted."""
    from lce_core.models import MODELS
    from lce_core.store.artifacts import Store

    how = _execution(None, plugins=plugins)
    entry = {"name": name}
    if name.startswith("hub:"):
        repo, _, revision = name.removeprefix("hub:").partition("@")
        entry = {"name": "hub_model", "repo": repo, "revision": revision}
    folder = MODELS.parse(entry, "lce fetch").fetch(Store(how.home).models)
    typer.echo(f"{name}: {folder}")


@app.command()
def export(
    study: Study,
    out: Annotated[Path, typer.Argument(help="The folder to write, new or empty.")],
    select: Annotated[str, typer.Option(help="The one variant: method=yarn,frozen=false,...")] = "",
    length: Annotated[
        int | None,
        typer.Option(
            min=1, help="Requests of how many tokens, for a method that follows their length."
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="fp32 or bf16; without it weights stay as they are.")
    ] = None,
    model_folder: ModelFolder = [],  # noqa: B006
    data_folder: DataFolder = [],  # noqa: B006
    plugins: Plugins = [],  # noqa: B006
) -> None:
    """Writes one variant's checkpoint as a folder that stock transformers runs, method included."""
    from flows.exporting import export_variant

    how = _execution(None, model_folder=model_folder, data_folder=data_folder, plugins=plugins)
    for line in export_variant(study, how, out, select=select, length=length, precision=precision):
        typer.echo(line)


@app.command()
def new(
    kind: Annotated[str, typer.Argument(help="method or benchmark.")],
    name: Annotated[str, typer.Argument(help="What studies will call it.")],
    folder: Annotated[
        Path, typer.Option(help="Folder for plug-ins of your own, as for --plugins.")
    ] = Path("plugins"),
) -> None:
    """Writes the file of a method or benchmark of your own, with the lines to fill in marked."""
    from flows.scaffolding import new_plugin

    file = new_plugin(kind, name, folder)
    typer.echo(f"{file}\nFill in every line marked {MARK!r} and remove the marks. Then:")
    typer.echo(f"  lce check {file}\n  lce run STUDY --plugins {folder}")


@app.command()
def check(
    path: Annotated[
        Path, typer.Argument(help="A plug-in's file, or a folder of them as for --plugins.")
    ],
    data_folder: DataFolder = [],  # noqa: B006
) -> None:
    """Tries plug-ins of your own against the contract; exits with 1 if they do not keep it."""
    from flows.checking import check_plugins

    how = _execution(None, data_folder=data_folder)
    if not check_plugins(path, how.data_folders):
        raise typer.Exit(1)


@rebuild.command("catalog")
def rebuild_catalog() -> None:
    """Builds the DuckDB catalog anew from the store."""
    from flows.settings import home
    from tasks import projections

    typer.echo(str(projections.rebuild_catalog(home())))


@rebuild.command("mlflow")
def rebuild_mlflow() -> None:
    """Projects every study of the store to MLflow anew."""
    from flows.settings import home
    from tasks import projections

    typer.echo(f"projected: {', '.join(projections.rebuild_mlflow(home())) or 'no study yet'}")


def _execution(file: Path | None, **options: Any) -> Any:
    from flows.settings import DATA_FOLDER, existing_folders, make_execution, named_folders
    from lce_core.study.plugin_folders import add_plugin_folders

    models, data = options.pop("model_folder", []), options.pop("data_folder", [])
    plugins = existing_folders(options.pop("plugins", []), "--plugins")
    options["model_folders"] = named_folders(models, "--model-folder") or None
    options["data_folders"] = named_folders(data, DATA_FOLDER) or None
    options["plugin_folders"] = plugins or None
    execution = make_execution(options, file)
    add_plugin_folders(execution.plugin_folders)
    return execution
