"""`lce verify --files` over a real store: what it prints, and its exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
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


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "home")
    store.prepare()
    store.ensure(STEP, write, {})
    return store


def test_an_undamaged_store_exits_with_0(store: Store) -> None:
    said = asked(store.home, "--files")
    assert (said.exit_code, said.stderr) == (0, "")
    assert "1 artifacts read" in said.stdout
    assert "none damaged" in said.stdout
    assert "seal" not in said.stdout


def test_a_damaged_artifact_is_named_with_what_to_do_and_exits_with_1(store: Store) -> None:
    (store.path(STEP) / "a.txt").write_text("whale")
    said = asked(store.home, "--files")
    assert said.exit_code == 1
    assert f"cell {store.path(STEP).name}: the content of a.txt is not what" in said.stdout
    assert "`lce run STUDY` recomputes" in said.stdout


def test_without_a_store_there_is_nothing_to_read(tmp_path: Path) -> None:
    said = asked(tmp_path / "none", "--files")
    assert said.exit_code == 0
    assert "0 artifacts read" in said.stdout
    assert not (tmp_path / "none").exists()
