"""`lce verify --files` over a real store: what it prints, and its exit code."""

from pathlib import Path

from typer.testing import CliRunner, Result

from lce import cli
from lce_core.store.artifacts import Attempt, Store
from tests.support.free_steps import free_step

STEP = free_step("cell", "x", {"n": 1}, {})


def write(attempt: Attempt) -> dict[str, object]:
    (attempt.out / "a.txt").write_text("whole")
    return {}


def asked(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["verify", *arguments], env={"LCE_HOME": str(home)})


def test_a_damaged_artifact_is_named_with_what_to_do_and_exits_with_1(tmp_path):
    store = Store(tmp_path / "home")
    assert "0 artifacts read" in asked(store.home, "--files").stdout
    assert not store.home.exists()
    store.prepare()
    store.ensure(STEP, write, {})
    said = asked(store.home, "--files")
    assert (said.exit_code, said.stderr) == (0, "")
    assert "1 artifacts read" in said.stdout
    (store.path(STEP) / "a.txt").write_text("whale")
    said = asked(store.home, "--files")
    assert said.exit_code == 1
    assert f"cell {store.path(STEP).name}: the content of a.txt" in said.stdout
