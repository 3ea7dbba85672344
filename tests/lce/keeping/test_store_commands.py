"""`lce gc`, `lce verify --files` and `lce prompt` as typed, over real stores."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from lce.cli import app
from lce_core.errors import SpecError
from lce_core.store.artifacts import Attempt, Store
from tests.support.asked_cells import LENGTH, AskedStudy
from tests.support.free_steps import free_step

STEP = free_step("cell", "x", {"n": 1}, {})


def asked(home: Path, *arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env={"LCE_HOME": str(home)})


def write(attempt: Attempt) -> dict[str, object]:
    (attempt.out / "a.txt").write_text("whole")
    return {}


@pytest.fixture
def store(tmp_path) -> Store:
    store = Store(tmp_path / "home")
    store.prepare()
    store.ensure(STEP, write, {})
    return store


def test_a_dry_run_lists_and_removes_nothing(store):
    empty = {key: [] for key in ("cells", "trainings", "steps", "expects")}
    plan = {**empty, "study": "mine", "hypothesis": None}
    store.studies.save_plan("mine", plan, "mine.yaml")
    listed = asked(store.home, "gc", "--dry-run")
    assert listed.exit_code == 0
    assert f"artifacts/{STEP.folder}  (no plan or lock needs it)" in listed.output
    assert "would free" in listed.output.splitlines()[-1]
    assert store.record(STEP)
    removed = asked(store.home, "gc")
    assert removed.output == listed.output.replace("would free", "freed")
    assert not store.record(STEP)
    assert asked(store.home, "gc").output == "freed 0 B: nothing to remove\n"


def test_a_damaged_artifact_is_named_with_what_to_do_and_exits_with_1(store, tmp_path):
    assert "0 artifacts read" in asked(tmp_path / "none", "verify", "--files").stdout
    assert not (tmp_path / "none").exists()
    said = asked(store.home, "verify", "--files")
    assert (said.exit_code, said.stderr) == (0, "")
    assert "1 artifacts read" in said.stdout
    (store.path(STEP) / "a.txt").write_text("whale")
    said = asked(store.home, "verify", "--files")
    assert said.exit_code == 1
    assert f"cell {store.path(STEP).name}: the content of a.txt" in said.stdout


@pytest.mark.parametrize(
    "command",
    [
        ("verify", "--files", "--sample", "10"),
        ("verify", "--files", "--seed", "1"),
        ("verify", "--files", "--tolerance", "0.1"),
        ("verify", "--files", "--select", "method=yarn"),
        ("methods", "--json", "--markdown"),
        ("methods", "--exports", "--json"),
        ("benchmarks", "--json", "--markdown"),
        ("recipes", "--json", "--markdown"),
    ],
)
def test_an_option_without_an_effect_is_refused(command, tmp_path):
    error = asked(tmp_path / "home", *command).exception
    assert isinstance(error, SpecError)
    assert command[2] in str(error)


@pytest.fixture(scope="module")
def study(made_once) -> AskedStudy:
    return AskedStudy.of(made_once)


def test_the_text_of_a_prompt_stands_alone_so_that_it_can_be_piped(study):
    cell = study.cell("passkey")
    found = asked(study.home, "prompt", cell, "1")
    assert found.exit_code == 0, found.output
    given = study.recorded[cell][1]
    assert found.stdout == bytes(given).decode() + "\n"
    assert f"{len(given):,} tokens, {len(given):,} characters" in found.stderr
    assert " a right answer 2 times" in found.stderr


def test_the_json_of_a_prompt_has_the_ids_and_where_the_answer_stands(study):
    cell = study.cell("needle")
    found = json.loads(asked(study.home, "prompt", cell, "9", "--json").stdout)
    (prompt,) = found["prompts"]
    assert prompt["ids"] == study.recorded[cell][9]
    assert len(prompt["ids"]) == LENGTH - 1
    ((first, last),) = prompt["places"]
    assert prompt["text"][first:last] == found["sample"]["reference"]
