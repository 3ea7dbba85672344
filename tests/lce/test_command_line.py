"""Help, version, completion and JSON output, as a shell user or a script meets them."""

import json
import os
import shlex
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import pytest
import typer
import typer.main
from typer.testing import CliRunner

from lce import cli
from lce.cli import GROUPS, app
from lce.commands.options import EVERY, FOLDERS, with_execution
from lce_core import errors
from lce_core.benchmarks import BENCHMARKS
from lce_core.corpora import CORPORA
from lce_core.environment import for_child
from lce_core.errors import SpecError, StudyIncompleteError
from lce_core.execution import Execution
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.study.study_file import recipe_names

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


CODES = {
    "StudyIncompleteError": 1,
    "SpecError": 2,
    "UnavailableError": 2,
    "DataError": 2,
    "NonFiniteError": 2,
    "StepsFailedError": 2,
    "StoreError": 3,
    "LeaseLostError": 3,
    "ServiceError": 3,
    "PrefectMovedError": 3,
    "WorkerLostError": 3,
    "RunEndedError": 3,
    "ProcessFailedError": 3,
    "DefectError": 3,
}
"""As the README has them; 3 is what no change of the request cures."""


def test_every_class_of_error_has_its_exit_code():
    parts = ("where", "this", "that", "do it", "")
    found = {}
    for name in (kind for kind in vars(errors) if kind.endswith("Error") and kind != "LceError"):
        error = errors.restored(name, parts)
        assert error is not None
        found[name] = cli.exit_code(error)
    assert found == CODES


def test_an_error_ends_the_command_with_its_message_and_code(monkeypatch, capsys):
    error = StudyIncompleteError("toy", {"train-yarn": "non_finite: loss nan"}, 0)

    def fail(*_: str) -> None:
        raise error

    monkeypatch.setattr("lce.plugins.listing.show", fail)
    monkeypatch.setattr(sys, "argv", ["lce", "models"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"lce: {error}\n"


@pytest.mark.parametrize("closing", ["sys.stdout.close()", "os.close(1)"])
def test_a_plugin_that_closes_standard_output_is_told_so(closing):
    code = (
        "import os, sys; from lce import cli; from lce.plugins import listing;"
        f"listing.show = lambda *_: ({closing}, print('a list', flush=True));"
        "sys.argv = ['lce', 'models']; cli.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=for_child(os.environ), capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stderr.startswith("lce: standard output: got a stream that is closed; expected ")
    assert done.stderr.count("\n") == 1


@pytest.fixture(autouse=True)
def _own_home(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("LCE_HOME", str(tmp_path / "home"))


def test_each_option_reaches_its_field(tmp_path):
    file = tmp_path / "machine.yaml"
    file.write_text("processes: 2\nslots: 5\n", encoding="utf-8")
    for name in ("weights", "more", "books", "own"):
        (tmp_path / name).mkdir()
    app, heard = typer.Typer(), list[tuple[str, Execution]]()

    @app.command()
    @with_execution(*EVERY)
    def command(how: Execution, study: str) -> None:
        heard.append((study, how))

    given = [
        "toy", "--slots=3", "--training-slots=1", "--evaluation-slots=2", "--device=cpu",
        "--micro-batch-tokens=512", f"--data-folder=pg19={tmp_path / 'books'}",
        f"--plugins={tmp_path / 'own'}", f"--execution={file}",
        *(f"--model-folder={name}={tmp_path / name}" for name in ("weights", "more")),
    ]  # fmt: skip
    CliRunner().invoke(app, given, catch_exceptions=False)
    ((study, how),) = heard
    assert study == "toy"
    assert (how.slots, how.training_slots, how.evaluation_slots) == (3, 1, 2)
    assert (how.processes, how.micro_batch_tokens) == (2, 512)  # The file's, and the option's.
    assert how.device == "cpu"
    assert how.model_folders == {name: tmp_path / name for name in ("weights", "more")}
    assert how.data_folders == {"pg19": tmp_path / "books"}
    assert how.plugin_folders == (tmp_path / "own",)


def test_a_command_has_only_the_options_it_asks_for():
    app = typer.Typer()
    app.command()(with_execution(*FOLDERS)(lambda: None))
    assert CliRunner().invoke(app, ["--slots", "2"]).exit_code == 2


def test_options_count_where_the_command_does_not_look_at_them():
    app = typer.Typer()
    app.command()(with_execution("plugins")(lambda: None))
    assert CliRunner().invoke(app, []).exit_code == 0
    with pytest.raises(SpecError, match="--plugins"):
        CliRunner().invoke(app, ["--plugins", "/nowhere"], catch_exceptions=False)
