"""`lce gc` as typed: what it lists, what it then removes."""

from typer.testing import CliRunner

from lce.cli import app
from lce_core.store.artifacts import Attempt, Store
from tests.support.free_steps import free_step


def write(attempt: Attempt) -> dict[str, object]:
    (attempt.out / "a.txt").write_bytes(bytes(3000))
    return {}


def test_a_dry_run_lists_and_removes_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("LCE_HOME", str(tmp_path))
    store = Store(tmp_path)
    store.prepare()
    step = free_step("cell", "old", {"n": 1}, {})
    store.ensure(step, write, {})
    empty = {key: [] for key in ("cells", "trainings", "steps", "expects")}
    plan = {**empty, "study": "mine", "hypothesis": None}
    store.studies.save_plan("mine", plan, "mine.yaml")
    listed = CliRunner().invoke(app, ["gc", "--dry-run"])
    assert listed.exit_code == 0
    assert f"artifacts/{step.folder}  (no plan or lock needs it)" in listed.output
    assert "would free" in listed.output.splitlines()[-1]
    assert store.record(step)
    removed = CliRunner().invoke(app, ["gc"])
    assert removed.output == listed.output.replace("would free", "freed")
    assert not store.record(step)
    assert CliRunner().invoke(app, ["gc"]).output == "freed 0 B: nothing to remove\n"
