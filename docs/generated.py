"""MkDocs hook of `make docs`: generate reference pages from the code, and adapt links.

Generated pages list methods, benchmarks, recipes, exports, catalog views, keys of a study file and
commands. README.md becomes the first page. A link to a source file leads to the page that is
generated from it; other links to source files become plain text, because the site contains no
source files. On GitHub the same links lead to the files.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import typer.main
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pydantic import BaseModel

from catalog.build import write_tables
from catalog.queries import run_query
from lce.cli import app
from lce.plugins import listing
from lce_core.execution import Execution
from lce_core.recipe import Evaluation, Training, Upsampling
from lce_core.study.expectation import Expectation
from lce_core.study.spec import BenchmarkEntry, MethodEntry, StudySpec
from lce_core.study.tuning import Tune

ROOT = Path(__file__).resolve().parent.parent
FRONT = "README.md"
SOURCES = {
    "lce_core/methods": "methods.md",
    "lce_core/benchmarks": "benchmarks.md",
    "lce_core/recipes": "recipes.md",
    "lce_core/export/stock_form.py": "exports.md",
    "lce_core/study/spec.py": "study-file.md",
    "catalog/sql": "views.md",
}
"""Source file or folder to which documents link: the page generated from it."""
_LINK = re.compile(
    r"\[((?:!\[[^\]]*\]\([^)]*\)|[^\[\]])*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)"
)


def study_keys() -> str:
    """Return a Markdown page of all keys of study files and execution files."""
    entry = "All other keys are parameters of the plug-in `name`."
    return "\n".join(
        [
            "# Keys of a study file",
            "",
            "Generated from `lce_core/study/{spec,expectation,tuning}.py`, `lce_core/recipe.py` and"
            " `lce_core/execution.py`.",
            *_section("A study", StudySpec),
            *_section("An entry of `methods`", MethodEntry, "method", entry),
            *_section("An entry of `benchmarks`", BenchmarkEntry, "benchmark", entry),
            *_section("An entry of `expects`", Expectation),
            *_section("`training`", Training),
            *_section("`tune`", Tune),
            *_section("`upsampling`", Upsampling),
            *_section("`evaluation`", Evaluation),
            *_section(
                "An execution file",
                Execution,
                note="`lce run STUDY --execution FILE` reads these keys. They describe how one"
                " machine runs the study, and change no result and no id.",
            ),
            "",
        ]
    )


def _section(title: str, model: type[BaseModel], plugin: str = "", note: str = "") -> Iterator[str]:
    yield from ("", f"## {title}", "")
    if note:
        yield from (note, "")
    yield from ("| key | default | meaning |", "|---|---|---|")
    if plugin:
        yield f"| `name` | required | Registered name of the {plugin}. |"
    for key, field in model.model_fields.items():
        if key in (plugin, "at_best"):  # `tune` sets at_best, no study file
            continue
        default = "required" if field.is_required() else _default(field.default)
        yield f"| `{key}` | {default} | {_one_line(field.description or '')} |"


def _default(value: Any) -> str:
    if isinstance(value, BaseModel):
        return "see below"
    if value in (None, (), {}):
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def options() -> str:
    """Return a Markdown page of all `lce` commands with arguments and options."""
    # Typer carries its own copy of click, so the group has no class to name here.
    group: Any = typer.main.get_command(app)
    parts = [
        "# All options",
        "",
        "Generated from the help texts, which `lce COMMAND --help` prints.",
        "",
    ]
    for name, command in sorted(_commands(group, "lce")):
        parts += [f"## {name}", "", _one_line(command.help or ""), ""]
        rows = [_parameter(one) for one in command.params]
        if rows:
            parts += ["| argument or option | meaning |", "|---|---|", *rows, ""]
    return "\n".join(parts)


def _commands(group: Any, path: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def _parameter(one: Any) -> str:
    names = [one.name.upper()] if one.param_type_name == "argument" else [*one.opts]
    return f"| `{'`, `'.join(names)}` | {_one_line(one.help or '')} |"


def views() -> str:
    """Return a Markdown page of all catalog views and columns, read from an empty catalog."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalog.duckdb"
        write_tables({}, path)
        _, found = run_query(
            path,
            "SELECT schema_name, view_name, comment FROM duckdb_views() WHERE NOT internal"
            " ORDER BY schema_name <> 'main', schema_name, view_oid",
        )
        _, columns = run_query(
            path,
            "SELECT schema_name, table_name, column_name, lower(data_type), comment"
            " FROM duckdb_columns() WHERE NOT internal ORDER BY column_index",
        )
    parts = ["# Views and columns", "", "Generated from the comments of the catalog's views.", ""]
    for schema, view, comment in found:
        name = view if schema == "main" else f"{schema}.{view}"
        rows = [
            f"| `{column}` | {kind} | {_one_line(meaning or '')} |"
            for in_schema, table, column, kind, meaning in columns
            if (in_schema, table) == (schema, view)
        ]
        parts += [
            f"## {name}",
            "",
            comment or "",
            "",
            "| column | type | meaning |",
            "|---|---|---|",
        ]
        parts += [*rows, ""]
    return "\n".join(parts)


def exports() -> str:
    """Return a Markdown page of how `lce export` writes each method."""
    head = (
        "# Exports\n\nThe RoPE parameters that `lce export` writes to `config.json` for each method"
        " with default parameters, as `lce methods --exports` prints them.\n\n"
    )
    return head + listing.exports_table()


GENERATED: dict[str, Callable[[], str]] = {
    "methods.md": listing.methods_markdown,
    "benchmarks.md": listing.benchmarks_markdown,
    "recipes.md": listing.recipes_markdown,
    "exports.md": exports,
    "study-file.md": study_keys,
    "options.md": options,
    "views.md": views,
}


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and README.md to the site."""
    for name, write in GENERATED.items():
        files.append(File.generated(config, name, content=write()))
    files.append(File.generated(config, "index.md", content=(ROOT / FRONT).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace links to files of the repository by links to pages; leave code blocks unchanged."""
    name = page.file.src_uri
    source = FRONT if name == "index.md" else f"docs/{name}"

    def resolve(link: re.Match[str]) -> str:
        text, target, anchor = link[1], link[2], link[3] or ""
        text = _LINK.sub(resolve, text)
        path = os.path.normpath(Path(source).parent / target)
        found = "index.md" if path == FRONT else SOURCES.get(path)
        if path.startswith("docs/") and not path.endswith(".py"):
            found = path.removeprefix("docs/")
        if found is None:
            return text
        return f"[{text}]({os.path.relpath(found, Path(name).parent)}{anchor})"

    parts = re.split(r"(^```.*?^```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    return "".join(one if one.startswith("```") else _LINK.sub(resolve, one) for one in parts)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Let names of tests and long keys in tables break between words instead of anywhere."""
    return re.sub(
        r"(?<=<code>)[^<\s]{20,}(?=</code>)",
        lambda name: re.sub("[/_]|::", r"\g<0><wbr>", name[0]),
        html,
    )


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Name the search dialog for screen readers, which the theme does not."""
    return output.replace('class="md-search" ', 'class="md-search" aria-label="Search" ')
