"""Commands for stored results: `lce lock`, `verify`, `gc`, `export`, `certify`, ...."""

from pathlib import Path
from typing import Annotated

import typer

from flows.terminal import say
from lce.commands.options import FOLDERS, Select, Study, with_execution
from lce_core.errors import SpecError
from lce_core.execution import Execution


@with_execution(*FOLDERS)
def lock(
    how: Execution,
    study: Study,
    check: Annotated[
        bool, typer.Option("--check", help="Only compare; exit with 1 if an id changed.")
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option(help="Default: study.lock beside the file; NAME.lock of a shipped study."),
    ] = None,
) -> None:
    """Write a study's lock file (ids and inputs of all steps), or compare the study with it."""
    from flows.locking import check_lock, write_lock

    if not check:
        write_lock(study, how, file)
    elif not check_lock(study, how, file):
        raise typer.Exit(1)


@with_execution("slots", "device", "micro_batch_tokens", *FOLDERS, "execution")
def verify(
    how: Execution,
    study: Annotated[
        str, typer.Argument(help="A study's name, or a study file; omit it with --files.")
    ] = "",
    files: Annotated[
        bool, typer.Option("--files", help="Reread every artifact of the store; report damage.")
    ] = False,
    sample: Annotated[str, typer.Option(help="Cells to recompute: 5% or 10.")] = "5%",
    seed: Annotated[int, typer.Option(help="Seed of the random choice of cells.")] = 0,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Largest relative difference at which two values agree.")
    ] = 0.0,
    select: Select = "",
) -> None:
    """Recompute a sample of the finished cells and compare; exit with 1 if results differ."""
    from lce.keeping.verifying import verify_files, verify_study

    if files == bool(study):
        raise SpecError(
            "lce verify",
            f"--files and the study {study!r}" if study else "neither a study nor --files",
            "either a study, whose cells are recomputed, or --files, which rereads the store",
            "give one of the two",
        )
    if files and (sample, seed, tolerance, select) != ("5%", 0, 0.0, ""):
        raise SpecError(
            "lce verify --files",
            "one of the options --sample, --seed, --tolerance and --select",
            "none of them, because --files rereads the whole store",
            "leave it out, or name a study instead of --files",
        )
    sound = (
        verify_files(how.home)
        if files
        else verify_study(study, how, sample=sample, seed=seed, select=select, tolerance=tolerance)
    )
    if not sound:
        raise typer.Exit(1)


def import_(
    parcels: Annotated[
        list[Path],
        typer.Argument(metavar="PARCEL...", help="Result parcels, such as toy.results-0001.tar."),
    ],
) -> None:
    """Add results that other machines computed to this home; exit with 1 if any is refused."""
    from flows.settings import home
    from lce.keeping.importing import import_parcels

    if not import_parcels(home(), parcels):
        raise typer.Exit(1)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list; remove nothing.")] = False,
    lock: Annotated[
        list[Path], typer.Option("--lock", help="A lock file whose artifacts are kept as well.")
    ] = [],  # noqa: B006
    prompt_gb: Annotated[
        float, typer.Option(min=0, help="Gigabytes of cached prompts to keep, newest first.")
    ] = 2.0,
) -> None:
    """Remove artifacts that no plan or lock needs; refuse while a step is being computed."""
    from flows.settings import home
    from lce.keeping.cleaning import clean

    clean(home(), dry_run=dry_run, locks=lock, prompt_gigabytes=prompt_gb)


@with_execution(*FOLDERS)
def export(
    how: Execution,
    study: Study,
    out: Annotated[Path, typer.Argument(help="Folder to write; it must be new or empty.")],
    select: Annotated[
        str, typer.Option(help="One variant, such as variant=yarn-tuned,seed=0.")
    ] = "",
    length: Annotated[
        int | None,
        typer.Option(
            min=1, help="Request length in tokens, for a method whose frequencies depend on it."
        ),
    ] = None,
    precision: Annotated[
        str | None, typer.Option(help="Convert the weights to fp32 or bf16.")
    ] = None,
    mlflow: Annotated[
        str | None,
        typer.Option(help="Also register the folder under this name in MLflow's model registry."),
    ] = None,
) -> None:
    """Write a model of the study, method included, as a folder for unmodified transformers."""
    from lce.keeping.exporting import export_variant

    for line in export_variant(
        study, how, out, select=select, length=length, precision=precision, mlflow=mlflow
    ):
        say(line)


def certify(
    folder: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="Folder with config.json, such as an exported model."),
    ],
    runtimes: Annotated[
        list[str],
        typer.Option("--with", metavar="NAME", help="transformers, vllm, llama.cpp or mlx."),
    ] = [],  # noqa: B006
) -> None:
    """Check that other programs compute the model of a config.json; exit with 1 if not."""
    from lce.keeping.certifying import certify as compare

    lines, agree = compare(folder, runtimes)
    for line in lines:
        say(line)
    if not agree:
        raise typer.Exit(1)


@with_execution(*FOLDERS)
def pack(
    how: Execution,
    study: Study,
    out: Annotated[Path, typer.Option(help="Folder for the parcels; it must be new or empty.")],
    parcel: Annotated[str, typer.Option(help="Maximum size of a parcel, such as 60MB.")] = "60MB",
    python: Annotated[str, typer.Option(help="Python of the other machine.")] = "3.12",
    has: Annotated[
        list[str],
        typer.Option(
            help="A package that the other machine has, besides torch, transformers, accelerate."
        ),
    ] = [],  # noqa: B006
    select: Select = "",
) -> None:
    """Pack the study's missing steps for a machine with GPUs and without network."""
    from lce.keeping.packing import pack_study

    for line in pack_study(study, how, out, parcel=parcel, python=python, has=has, select=select):
        say(line)
