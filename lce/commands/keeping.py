"""Commands for stored results: `lce lock`, `verify`, `gc`, `export`."""

from __future__ import annotations

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
        bool, typer.Option("--check", help="Compare only; exit with 1 where an id moved.")
    ] = False,
    file: Annotated[
        Path | None, typer.Option(help="The lock, if not NAME.lock beside NAME.yaml.")
    ] = None,
) -> None:
    """Write the study's lock (the ids of all steps and what they depend on), or compare with it."""
    from flows.locking import check_lock, write_lock

    if not check:
        write_lock(study, how, file)
    elif not check_lock(study, how, file):
        raise typer.Exit(1)


@with_execution("slots", "device", "micro_batch_tokens", *FOLDERS, "execution")
def verify(
    how: Execution,
    study: Annotated[
        str, typer.Argument(help="A shipped study's name, or a study file; none with --files.")
    ] = "",
    files: Annotated[
        bool, typer.Option("--files", help="Read every artifact of the store again instead.")
    ] = False,
    sample: Annotated[str, typer.Option(help="A share of the done cells, or a number.")] = "5%",
    seed: Annotated[int, typer.Option(help="Another one draws other cells.")] = 0,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Relative difference up to which values agree.")
    ] = 0.0,
    select: Select = "",
) -> None:
    """Compute a sample of the finished cells again, aside; exit with 1 if results differ."""
    from lce.keeping.verifying import verify_files, verify_study

    if files == bool(study):
        raise SpecError(
            "lce verify",
            f"--files and the study {study!r}" if study else "neither a study nor --files",
            "a study whose cells are computed again, or --files, which reads the whole store",
            "give one of them",
        )
    sound = (
        verify_files(how.home)
        if files
        else verify_study(study, how, sample=sample, seed=seed, select=select, tolerance=tolerance)
    )
    if not sound:
        raise typer.Exit(1)


def gc(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List only; remove nothing.")] = False,
    lock: Annotated[
        list[Path], typer.Option("--lock", help="A lock whose artifacts stay, beside the store's.")
    ] = [],  # noqa: B006
    prompt_gb: Annotated[
        float, typer.Option(min=0, help="Most gigabytes of built prompts; the oldest go.")
    ] = 2.0,
) -> None:
    """Remove what no plan or lock of a study needs; refuse while a step is being computed."""
    from flows.settings import home
    from lce.keeping.cleaning import clean

    clean(home(), dry_run=dry_run, locks=lock, prompt_gigabytes=prompt_gb)


@with_execution(*FOLDERS)
def export(
    how: Execution,
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
) -> None:
    """Write one variant's checkpoint as a folder that stock transformers runs, method included."""
    from lce.keeping.exporting import export_variant

    for line in export_variant(study, how, out, select=select, length=length, precision=precision):
        say(line)
