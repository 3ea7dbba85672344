"""Options of a machine reach every command that asks for them, in one form."""

import pytest
import typer
from typer.testing import CliRunner

from lce.commands.options import EVERY, FOLDERS, with_execution
from lce_core.errors import SpecError
from lce_core.execution import Execution


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch) -> None:
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
