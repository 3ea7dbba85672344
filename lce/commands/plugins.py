"""Commands about methods, benchmarks, models, text sources and recipes, and users' plug-ins."""

import json
from pathlib import Path
from typing import Annotated

import typer

from flows.terminal import say
from lce.commands.options import with_execution
from lce_core.errors import SpecError
from lce_core.execution import Execution

AsJson = Annotated[bool, typer.Option("--json", help="Print the table as JSON.")]


def _list(kind: str, **forms: bool) -> None:
    from lce.plugins import listing

    chosen = [name for name, is_chosen in forms.items() if is_chosen]
    if len(chosen) > 1:
        got = " and ".join(f"--{name}" for name in chosen)
        raise SpecError("form of the output", got, "one form", "choose one")
    listing.show(kind, chosen[0] if chosen else "table")


@with_execution("plugins")
def methods(
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print all parameters and sources as Markdown.")
    ] = False,
    exports: Annotated[
        bool, typer.Option("--exports", help="Print how each method is exported.")
    ] = False,
) -> None:
    """List the context-extension methods."""
    _list("methods", json=as_json, markdown=markdown, exports=exports)


@with_execution("plugins")
def benchmarks(
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print profiles, costs and sources as Markdown.")
    ] = False,
) -> None:
    """List the benchmarks."""
    _list("benchmarks", json=as_json, markdown=markdown)


def recipes(
    as_json: AsJson = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print every value with its source as Markdown.")
    ] = False,
) -> None:
    """List the training recipes: published training settings that a study can use by name."""
    _list("recipes", json=as_json, markdown=markdown)


@with_execution("plugins")
def models(as_json: AsJson = False) -> None:
    """List the base models."""
    _list("models", json=as_json)


@with_execution("plugins")
def corpora(as_json: AsJson = False) -> None:
    """List the text sources: what `corpus` of a study can name."""
    _list("corpora", json=as_json)


@with_execution("plugins")
def fetch(
    how: Execution,
    name: Annotated[
        str,
        typer.Argument(
            help="A base model of `lce models` or hub:OWNER/NAME@COMMIT, or rows of a data set,"
            " datasets:OWNER/NAME@COMMIT:CONFIG:SPLIT."
        ),
    ],
) -> None:
    """Download a base model or a data set once, for runs without a network."""
    from lce_core.hub import fetch_rows, rows_address
    from lce_core.models import MODELS
    from lce_core.store.artifacts import Store

    if address := rows_address(Path(name)):
        for file in fetch_rows(address):
            say(f"{name}: {file}")
        return
    entry = {"name": name}
    if name.startswith("hub:"):
        repo, _, revision = name.removeprefix("hub:").partition("@")
        entry = {"name": "hub_model", "repo": repo, "revision": revision}
    model = MODELS.parse(entry, "lce fetch")
    say(f"{name}: licence: {model.licence}")
    say(f"{name}: {model.fetch(Store(how.home).models)}")


@with_execution("plugins")
def schema() -> None:
    """Print the JSON Schema of study files, for completion in editors."""
    from lce.plugins.listing import study_schema

    say(json.dumps(study_schema(), indent=1))


def new(
    kind: Annotated[str, typer.Argument(help="method, benchmark, model or corpus.")],
    name: Annotated[str, typer.Argument(help="Name of the plug-in in study files.")],
    folder: Annotated[
        Path, typer.Option(help="Folder of plug-ins, as for `lce run --plugins`.")
    ] = Path("plugins"),
    attention: Annotated[
        bool,
        typer.Option("--attention", help="Write a method with its own attention, as an example."),
    ] = False,
) -> None:
    """Write a template for a new plug-in; the lines to fill in are marked."""
    from lce.plugins.authoring import new_plugin
    from lce_core.registry import MARK

    file = new_plugin(kind, name, folder, attention=attention)
    if attention:
        todo = "This method is complete. Change its scheme, kernel, SOURCE and EVIDENCE. Then:"
    else:
        todo = f"Fill in every line marked {MARK!r} and remove the marks. Then:"
    say(f"{file}\n{todo}")
    say(f"  lce check {file}\n  lce run STUDY --plugins {folder}")


@with_execution("data_folder")
def check(
    how: Execution,
    path: Annotated[
        Path, typer.Argument(help="File of a plug-in, or a folder of plug-ins as for --plugins.")
    ],
) -> None:
    """Run the contract tests on your plug-ins; exit with 1 if a test fails."""
    from lce.plugins.authoring import check_plugins

    if not check_plugins(path, how.data_folders):
        raise typer.Exit(1)
