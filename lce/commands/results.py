"""Commands that show results: `lce sql`, `report`, `claims`, `diff`, `prompt`, `rebuild`, ..."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from flows.terminal import say
from lce.commands.options import FOLDERS, Study, with_execution
from lce_core.errors import SpecError
from lce_core.execution import Execution

rebuild = typer.Typer(help="Rebuild the catalog or MLflow from the store.", no_args_is_help=True)


def sql(
    query: Annotated[str, typer.Argument(help="SELECT statement over the views of the catalog.")],
    form: Annotated[
        str, typer.Option("--format", help="table, csv, json, or parquet with --out.")
    ] = "table",
    out: Annotated[Path | None, typer.Option(help="Write to this file.", dir_okay=False)] = None,
    memory: Annotated[
        str | None,
        typer.Option(
            help="Memory limit, such as 8GB. Default: half of the free memory, at most 4 GB."
        ),
    ] = None,
) -> None:
    """Query the results: run a read-only SQL statement over the catalog."""
    from flows.settings import home
    from tasks.mending import mended
    from tasks.questions import answer, answer_in_file

    mended(home())
    if out is None:
        say(answer(home(), query, form, memory).rstrip("\n"))
    else:
        answer_in_file(home(), query, form, out, memory)


def catalog(
    parquet: Annotated[
        Path, typer.Option("--parquet", help="Folder for the files.", file_okay=False)
    ],
) -> None:
    """Write every view of the catalog to a Parquet file, for other programs."""
    from lce.api import open_results

    with open_results() as results:
        for file in results.write_parquet(parquet):
            say(str(file))


def report(
    study: Study,
    form: Annotated[
        Literal["html", "md", "latex", "pdf"],
        typer.Option(
            "--format",
            help="html: one page with its script; md: a folder of Markdown; latex: tables;"
            " pdf: the page on A4, printed by an installed Chromium.",
        ),
    ] = "html",
    out: Annotated[Path | None, typer.Option(help="File to write (for md: folder).")] = None,
) -> None:
    """Write the study's report: an HTML page, Markdown with pictures and scores, LaTeX, or PDF."""
    from dashboards.latex import write_latex
    from dashboards.markdown import write_markdown
    from dashboards.report import write_pdf, write_report
    from flows.settings import browser, home, study_name
    from tasks.mending import mended

    study = study_name(study)
    name = {"md": study, "latex": f"{study}.tex"}.get(form, f"{study}.{form}")
    path = (out or home() / "reports" / name).absolute()
    catalog = mended(home())
    writers = {"html": write_report, "md": write_markdown, "latex": write_latex}
    if form == "pdf":
        written = write_pdf(catalog, study, path, browser())
    else:
        written = writers[form](catalog, study, path)
    say(str(written))


def claims(
    study: Annotated[
        str | None,
        typer.Argument(
            help="Name of a study, or a study file. Default: published claims, over all studies."
        ),
    ] = None,
    method: Annotated[
        str | None, typer.Option(help="Only claims about this method, such as yarn or yarn-tuned.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="Only comparisons with this method as well.")
    ] = None,
    benchmark: Annotated[str | None, typer.Option(help="Only this benchmark.")] = None,
    length: Annotated[int | None, typer.Option(help="Only this length in tokens.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print all claims, with explanations.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="JSON with all numbers.")] = False,
) -> None:
    """Print a study's findings as sentences that significance tests support."""
    from dashboards.claims.printing import printed_claims
    from flows.settings import home, study_name
    from tasks.mending import mended

    given = {"method": method, "against": against, "benchmark": benchmark, "length": length}
    chosen = {name: value for name, value in given.items() if value}
    if chosen and study is None:
        name, value = next(iter(chosen.items()))
        raise SpecError(
            f"--{name}",
            f"{value} without a study",
            "a study with such claims",
            f"write `lce claims STUDY --{name} {value}`",
        )
    study = study and study_name(study)
    say(printed_claims(mended(home()), study, chosen, everything=everything, as_json=as_json))


def diff(
    first: Annotated[
        Path, typer.Argument(metavar="HOME_A", help="A home, or a copy of its catalog.")
    ],
    second: Annotated[Path, typer.Argument(metavar="HOME_B", help="The other home or catalog.")],
    study: Annotated[
        str | None, typer.Option(help="Only this study: its name, or a study file.")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Print all differences, not only a screen of them.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON of all differences, with the ids of the cells.")
    ] = False,
) -> None:
    """Compare the scores of two homes cell by cell; exit with 1 if they differ."""
    from flows.settings import study_name
    from tasks.differences import compare, scores_of

    name = study_name(study) if study else None
    found = compare(scores_of(first), scores_of(second), name)
    say(found.json() if as_json else found.text(everything=everything))
    if found.rows:
        raise typer.Exit(1)


@with_execution(*FOLDERS)
def prompt(
    how: Execution,
    cell: Annotated[str, typer.Argument(help="Id of a finished cell, as in the catalog.")],
    sample: Annotated[int, typer.Argument(min=0, help="Number of a sample of the cell, from 0.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON with token ids and the answer's position.")
    ] = False,
) -> None:
    """Print the prompt of one sample, rebuilt and compared with the digest in the store."""
    from lce_core import prompts
    from lce_core.store.artifacts import Store

    folders = how.model_folders, how.data_folders
    found = prompts.readable_sample(prompts.rebuilt_cell(Store(how.home), cell, *folders), sample)
    if as_json:
        say(json.dumps(prompts.to_json(found), indent=1))
        return
    row = found.sample
    say(f"{found.cell}, sample {row['sample']} of 0 to {found.num_samples - 1}", err=True)
    say(
        f"answer {row['prediction']!r}, reference {row['reference']!r}, score {row['score']:g}",
        err=True,
    )
    for line in prompts.origin(found):
        say(line, err=True)
    for number, prompt in enumerate(found.prompts, start=1):
        if len(found.prompts) > 1:
            say(f"query {number} of {len(found.prompts)}:", err=True)
        say(prompts.size(prompt), err=True)
        # Exactly the text that the model received; only a terminal escapes control characters.
        say(prompt.text)


def dashboard(
    port: Annotated[int, typer.Option(help="Port on 127.0.0.1.")] = 8501,
    refresh: Annotated[bool, typer.Option(help="Update the catalog as cells finish.")] = True,
) -> None:
    """Serve a dashboard of all studies, live while they run, until Ctrl-C."""
    from flows.servers.dashboard import become_dashboard
    from flows.settings import home

    become_dashboard(home(), port, refresh=refresh)


@rebuild.command("catalog")
def rebuild_catalog() -> None:
    """Rebuild the DuckDB catalog from the store."""
    from flows.settings import home
    from tasks import projections

    say(str(projections.rebuild_catalog(home())))


@rebuild.command("mlflow")
def rebuild_mlflow() -> None:
    """Write every study of the store to MLflow again."""
    from flows.settings import home, mlflow_server
    from tasks import projections

    shown = projections.rebuild_mlflow(home(), mlflow_server(home()))
    say(f"projected: {', '.join(shown) or 'no study yet'}")
