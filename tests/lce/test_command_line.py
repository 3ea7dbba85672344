"""Help, version, completion and JSON output, as a shell user or a script meets them."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from lce.cli import GROUPS, app
from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.study.recipes import recipe_names

EXAMPLES = [example for members in GROUPS.values() for example in members.values()]


def output(*arguments: str, **environment: str) -> str:
    program = "import sys; sys.argv[0] = 'lce'; from lce.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "COLUMNS": "80", **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_help_lists_every_command_under_its_task_and_fits_80_columns() -> None:
    text = output("-h")
    for group in GROUPS:
        assert f" {group} " in text
    for name in (*(example.split()[1] for example in EXAMPLES), "rope", "rebuild"):
        assert f"│ {name} " in text
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_example_of_a_command_is_in_its_help_and_can_be_parsed(example: str) -> None:
    _, name, *arguments = shlex.split(example)
    help_text = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "80"}).output
    assert " ".join(example.split()) in " ".join(help_text.split())
    assert "…" not in help_text
    group: Any = typer.main.get_command(app)
    group.commands[name].make_context(name, list(arguments))


def test_the_version_is_that_of_the_package() -> None:
    from importlib.metadata import version

    assert output("--version") == f"lce {version('lce')}\n"


def test_a_shell_completes_commands_and_studies() -> None:
    def completed(words: str) -> list[str]:
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        return output(_LCE_COMPLETE="complete_bash", **asked).split()

    assert "report" in completed("lce re")
    assert completed("lce run toy-b") == ["toy-beyond"]


@pytest.mark.parametrize(
    ("command", "column", "names"),
    [
        ("methods", "method", METHODS.names),
        ("benchmarks", "benchmark", BENCHMARKS.names),
        ("models", "base_model", MODELS.names),
        ("corpora", "corpus", CORPORA.names),
        ("recipes", "recipe", recipe_names),
    ],
)
def test_a_list_is_printed_as_json(
    command: str, column: str, names: Callable[[], Sequence[str]]
) -> None:
    printed = json.loads(CliRunner().invoke(app, [command, "--json"]).output)
    assert [row[column] for row in printed] == list(names())


def test_the_status_of_a_study_is_printed_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LCE_HOME", str(tmp_path))
    printed = json.loads(CliRunner().invoke(app, ["status", "smoke", "--json"]).output)
    assert printed["study"] == "smoke"
    assert printed["cells"]["new"] > 0
    assert printed["seconds_left"] > 0
    assert printed["running"] == printed["failed"] == []


def test_a_variant_given_as_a_method_names_the_axis_that_takes_it(tmp_path: Path) -> None:
    told = CliRunner().invoke(
        app, ["plan", "toy", "--select", "method=yarn-tuned"], env={"LCE_HOME": str(tmp_path)}
    )
    assert str(told.exception).endswith("; write variant=yarn-tuned")
