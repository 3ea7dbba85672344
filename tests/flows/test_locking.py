"""`lce lock` as typed: where the lock goes, what a check prints, what a run says of it."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from flows.locking import compare_with_lock, lock_file
from flows.request import compile_request
from flows.settings import STUDIES, make_execution
from lce.cli import app
from lce_core.errors import SpecError
from lce_core.store.artifacts import Store

SMOKE = (STUDIES / "smoke.yaml").read_text(encoding="utf-8")


@pytest.fixture
def study(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LCE_HOME", str(tmp_path / "home"))
    file = tmp_path / "mine.yaml"
    file.write_text(SMOKE, encoding="utf-8")
    return file


def lce(*arguments: object, status: int = 0) -> str:
    answer = CliRunner().invoke(app, [str(one) for one in arguments])
    assert answer.exit_code == status, answer.output
    return answer.output


def note(study: Path) -> str | None:
    execution = make_execution({"device": "cpu"})
    return compare_with_lock(compile_request(str(study), execution), Store(execution.home))


def test_a_lock_is_written_checked_and_moved_ids_are_listed(study):
    assert note(study) is None  # nothing is locked yet
    assert "ids (" in lce("lock", study)
    assert lock_file(str(study)) == study.with_name("study.lock")
    assert "ids are unchanged" in lce("lock", study, "--check")
    assert note(study) is None
    before = study.with_name("study.lock").read_text(encoding="utf-8")
    study.write_text(SMOKE.replace("warmup_steps: ", "warmup_steps: 1"), encoding="utf-8")
    assert study.read_text(encoding="utf-8") != SMOKE
    printed = lce("lock", study, "--check", status=1)
    assert "~ finetune toy_llama" in printed
    assert "training.warmup_steps: " in printed
    assert " changed ids (" in printed.splitlines()[-1]
    assert study.with_name("study.lock").read_text(encoding="utf-8") == before
    assert " changed ids (" in str(note(study))
    lce("lock", study)
    assert "ids are unchanged" in lce("lock", study, "--check")
    study.with_name("study.lock").write_text("<<<<<<< HEAD\n", encoding="utf-8")
    assert "not a lock" in str(note(study))


def test_the_lock_of_another_study_is_refused_and_stays(study):
    lce("lock", study)
    lock = study.with_name("study.lock")
    before = lock.read_bytes()
    other = study.with_name("other.yaml")
    other.write_text(SMOKE.replace("study: smoke", "study: other"), encoding="utf-8")
    for arguments in (("lock", other), ("lock", other, "--check")):
        answer = CliRunner().invoke(app, [str(one) for one in arguments])
        assert isinstance(answer.exception, SpecError)
        assert "the lock of study 'smoke'" in str(answer.exception)
    assert lock.read_bytes() == before
    assert note(other) is None  # a run of it has nothing to do with that lock
    lce("lock", other, "--file", study.with_name("other.lock"))
    assert lock_file(str(other)) == study.with_name("other.lock")
    assert "ids are unchanged" in lce("lock", other, "--check")


def test_a_store_keeps_what_is_locked(study, tmp_path):
    kept = tmp_path / "home" / "studies" / "smoke" / "study.lock"
    lce("lock", study)
    assert not kept.exists()  # there is no store yet, and a lock makes none
    note(study)  # as a run does
    assert kept.read_bytes() == study.with_name("study.lock").read_bytes()
    kept.unlink()
    lce("lock", study)
    assert kept.read_bytes() == study.with_name("study.lock").read_bytes()
