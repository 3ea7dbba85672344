"""Help, version, completion and JSON output, as a shell user or a script meets them."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
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


def output(*arguments: str) -> str:
    answer = CliRunner().invoke(app, list(arguments), prog_name="lce", env={"COLUMNS": "80"})
    assert answer.exit_code == 0
    return answer.output


def test_help_lists_every_command_under_its_task_and_fits_80_columns():
    text = output("-h")
    for group in GROUPS:
        assert f" {group} " in text
    for name in (*(example.split()[1] for example in EXAMPLES), "rope", "rebuild"):
        assert f"│ {name} " in text
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_the_example_of_a_command_is_in_its_help_and_can_be_parsed():
    group: Any = typer.main.get_command(app)
    for example in EXAMPLES:
        _, name, *arguments = shlex.split(example)
        help_text = output(name, "-h")
        assert " ".join(example.split()) in " ".join(help_text.split())
        assert "…" not in help_text
        group.commands[name].make_context(name, list(arguments))


@pytest.mark.parametrize("module", ["lce", "lce.cli"])
def test_the_command_runs_as_a_module(module):
    command = [sys.executable, "-m", module, "--version"]
    assert subprocess.check_output(command, text=True) == f"lce {version('lce')}\n"


def test_a_shell_completes_studies():
    program = "import sys; sys.argv[0] = 'lce'; from lce.cli import main; main()"
    asked = {
        "_LCE_COMPLETE": "complete_bash", "COMP_WORDS": "lce run toy-b", "COMP_CWORD": "2",
    }  # fmt: skip
    command = [sys.executable, "-c", program]
    assert subprocess.check_output(command, env=os.environ | asked, text=True).split() == [
        "toy-beyond"
    ]


def test_lists_are_printed_as_json():
    for command, column, names in (
        ("methods", "method", METHODS.names),
        ("benchmarks", "benchmark", BENCHMARKS.names),
        ("models", "base_model", MODELS.names),
        ("corpora", "corpus", CORPORA.names),
        ("recipes", "recipe", recipe_names),
    ):
        printed = json.loads(output(command, "--json"))
        assert [row[column] for row in printed] == list(names())


def test_the_status_of_a_study_is_printed_as_json(tmp_path, monkeypatch):
    monkeypatch.setenv("LCE_HOME", str(tmp_path))
    printed = json.loads(output("status", "smoke", "--json"))
    assert printed["study"] == "smoke"
    assert printed["cells"]["new"] > 0
    assert printed["seconds_left"] > 0
    assert printed["running"] == printed["failed"] == []


def test_a_variant_given_as_a_method_names_the_axis_that_takes_it(tmp_path):
    told = CliRunner().invoke(
        app, ["plan", "toy", "--select", "method=yarn-tuned"], env={"LCE_HOME": str(tmp_path)}
    )
    assert str(told.exception).endswith("; write variant=yarn-tuned")
