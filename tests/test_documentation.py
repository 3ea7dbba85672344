"""Documents say what the code says: commands, keys, links, and examples that work.

Strategy: read the Markdown files, compare what they name with what the code defines, and run what
they show.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from flows.cli import app
from flows.settings import shipped_studies
from lce_core.recipe import Evaluation, Training, Upsampling
from lce_core.study.spec import StudySpec
from lce_core.study.study_file import parse_study
from tests.support.repository import ROOT

DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def commands() -> dict[str, Any]:
    # Typer carries its own copy of click, so the group has no class to name here.
    group: Any = typer.main.get_command(app)
    return dict(group.commands)


def examples(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(name), flags=re.MULTILINE | re.DOTALL)


def test_the_readme_names_every_command() -> None:
    assert [name for name in commands() if f"`lce {name}" not in text("README.md")] == []


def test_every_command_named_in_a_document_exists() -> None:
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(
            r"(?:`|^|bin/)lce ([a-z]+)\b", document.read_text("utf-8"), re.MULTILINE
        )
    }
    assert named <= set(commands())


def test_every_study_named_in_a_document_is_shipped() -> None:
    named = {
        name
        for document in DOCUMENTS
        for name in re.findall(
            r"\blce (?:run|plan|status|report) ([a-z][a-z0-9-]+)", document.read_text("utf-8")
        )
    }
    assert named
    assert named <= set(shipped_studies())


def test_every_command_and_option_has_help() -> None:
    silent = [name for name, command in commands().items() if not command.help]
    for name, command in commands().items():
        options = [option for option in command.params if option.param_type_name == "option"]
        silent += [f"{name} {option.name}" for option in options if not option.help]
    assert silent == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_documents_link_only_to_files_that_exist(document: Path) -> None:
    links = re.findall(r"\]\((?!https?://|#|mailto:)([^)#\s]+)", document.read_text("utf-8"))
    assert [link for link in links if not (document.parent / link).exists()] == []


def test_the_study_reference_names_every_key_and_no_other() -> None:
    listed = re.findall(r"^\| `([a-z0-9_]+)` \|", text("docs/studies.md"), flags=re.MULTILINE)
    keys = {
        key for model in (StudySpec, Training, Upsampling, Evaluation) for key in model.model_fields
    }
    assert set(listed) == keys | {"name", "label", "tuned", "lengths", "tasks"}


@pytest.mark.parametrize("section", [Training, Upsampling, Evaluation])
def test_the_study_reference_gives_the_defaults_of_the_code(
    section: type[Training | Upsampling | Evaluation],
) -> None:
    name = section.__name__.lower()
    part = text("docs/studies.md").partition(f"## `{name}`")[2].partition("\n## ")[0]
    listed = dict(re.findall(r"^\| `([a-z0-9_]+)` \| (\S+) \|", part, flags=re.MULTILINE))
    expected = {
        key: "required" if field.is_required() else str(field.default).lower()
        for key, field in section.model_fields.items()
    }
    assert listed == expected


@pytest.mark.parametrize("kind", ["methods", "benchmarks"])
def test_a_generated_document_is_what_the_command_prints(kind: str) -> None:
    printed = CliRunner().invoke(app, [kind, "--markdown"])
    assert printed.exit_code == 0
    assert text(f"docs/{kind}.md") == printed.stdout, f"lce {kind} --markdown > docs/{kind}.md"


def test_the_example_study_is_read_without_complaint() -> None:
    (example,) = examples("docs/studies.md", "yaml")
    assert parse_study(example, "docs/studies.md").study == "four-times"


def test_the_example_method_is_a_whole_plug_in(tmp_path: Path) -> None:
    (example,) = examples("CONTRIBUTING.md", "python")
    (tmp_path / "methods").mkdir()
    (tmp_path / "methods" / "halved.py").write_text(example, encoding="utf-8")
    code = (
        "import sys, pathlib; from lce_core.study.plugin_folders import add_plugin_folders;"
        "from lce_core.methods import METHODS; from lce_core.methods._evidence import recompute;"
        "add_plugin_folders((pathlib.Path(sys.argv[1]),)); method = METHODS.load('halved');"
        "print([(recompute(method, e.given), e.expected) for e in method.evidence])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "[((0.5,), (0.5,))]"
