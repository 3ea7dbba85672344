"""Commands that show results: `lce sql`, `report`, `claims`, `prompt`, `dashboard`, `rebuild`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.terminal import say
from lce.commands.options import FOLDERS, Study, with_execution
from lce_core.execution import Execution
from tasks.own_code import of_own_code

ReportForm = Literal["html", "md", "latex", "pdf"]

rebuild = typer.Typer(help="Rebuild a projection from the store.", no_args_is_help=True)


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT over the catalog's views.")],
    form: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
    memory: Annotated[
        str | None,
        typer.Option(help="Memory for the query, as 8GB; else half of what is free, at most 4 GB."),
    ] = None,
) -> None:
    """Run a read-only SQL statement over the results catalog."""
    from flows.settings import home
    from tasks.mending import mended
    from tasks.questions import answer

    mended(home())
    say(answer(home(), query, form, memory).rstrip("\n"))


def report(
    study: Study,
    form: Annotated[
        ReportForm,
        typer.Option(
            "--format",
            help="html: one page with its script; md: a folder of Markdown; latex: tables;"
            " pdf: the page on A4, printed by an installed Chromium.",
        ),
    ] = "html",
    out: Annotated[
        Path | None, typer.Option(help="The file, or the folder for md, to write.")
    ] = None,
) -> None:
    """Write the study's report: an HTML page, Markdown with pictures and scores, LaTeX, or PDF."""
    from flows.settings import browser, home, study_name
    from tasks.mending import mended

    study = study_name(study)
    name = {"md": study, "latex": f"{study}.tex"}.get(form, f"{study}.{form}")
    path = (out or home() / "reports" / name).absolute()
    asked = ["--catalog", str(mended(home())), "--study", study, "--out", str(path)]
    asked += ["--browser", str(browser())] if form == "pdf" else []
    _show("dashboards", *asked, "--format", form)


def claims(
    study: Study,
    method: Annotated[
        str | None, typer.Option(help="Only claims about this method, pair by pair.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With all their numbers.")] = False,
) -> None:
    """Print what the study has found, in sentences that its tests support."""
    from flows.settings import home, study_name
    from tasks.mending import mended

    asked = ["--catalog", str(mended(home())), "--study", study_name(study)]
    asked += ["--method", method] if method else []
    asked += ["--json"] if as_json else []
    _show("dashboards.claims", *asked)


@with_execution(*FOLDERS)
def prompt(
    how: Execution,
    cell: Annotated[str, typer.Argument(help="A finished cell's id, as in the catalog.")],
    sample: Annotated[int, typer.Argument(min=0, help="The number of one of its samples.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="With token ids, and where the answer stands.")
    ] = False,
) -> None:
    """Rebuild the prompt of one sample of a finished cell, compare it with the store, print it."""
    from lce.keeping.prompts import show_sample

    show_sample(how, cell, sample, as_json=as_json)


def dashboard(
    port: Annotated[int, typer.Option(help="Port on this machine's loopback.")] = 8501,
    refresh: Annotated[
        bool, typer.Option(help="Bring the catalog up to date as cells finish.")
    ] = True,
) -> None:
    """Show all studies in a browser, live while they run, until Ctrl-C."""
    from flows.servers.dashboard import become_dashboard
    from flows.settings import home

    become_dashboard(home(), port, refresh=refresh)


@rebuild.command("catalog")
def rebuild_catalog() -> None:
    """Build the DuckDB catalog again from the store."""
    from flows.settings import home
    from tasks import projections

    say(str(projections.rebuild_catalog(home())))


@rebuild.command("mlflow")
def rebuild_mlflow() -> None:
    """Project every study of the store to MLflow again."""
    from flows.settings import home
    from tasks import projections

    say(f"projected: {', '.join(projections.rebuild_mlflow(home())) or 'no study yet'}")


def _show(module: str, *asked: str) -> None:
    # The package `dashboards` may import only the catalog, so it runs in its own process.
    done = subprocess.run([sys.executable, "-m", module, *asked], env=of_own_code())
    if done.returncode:
        raise typer.Exit(done.returncode)
