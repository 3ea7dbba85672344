"""A run that is killed, interrupted, doubled, out of disk or among hostile variables loses nothing.

Strategy: real runs in new homes, whose processes are found by a mark that all of them inherit.
"""

import contextlib
import shutil
import signal
import subprocess

import pytest

from lce_core.store.artifacts import Store
from tests.support.hostile_variables import HOSTILE
from tests.support.processes import marked, new_marker, survivors
from tests.support.small_disks import small_disk
from tests.support.studies import (
    HANG_SECONDS,
    TINY_STEPS,
    computed,
    copied_home,
    ended,
    environment,
    lce,
    new_home,
    scores,
    start,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow


def test_kill_9_loses_nothing_and_leaves_no_process(finished, migrated, text, tmp_path):
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    how = tmp_path / "how.yaml"
    how.write_text("checkpoint_seconds: 0.2\n", encoding="utf-8")
    arguments = ("run", write_study(tmp_path), "--execution", str(how), *text)
    with start(home, *arguments, env=marked(home, marker), stdout=subprocess.DEVNULL) as driver:
        wait_until(lambda: list(home.glob("progress/*/point-*/point.json")))
        driver.send_signal(signal.SIGKILL)
    wait_until(lambda: not survivors(marker))
    done = len(list(Store(home).records()))
    assert done > 0
    assert computed(lce(home, *arguments)) == TINY_STEPS - done
    assert scores(home) == scores(finished)
    assert not list((home / "artifacts").glob("*/.attempt*"))
    _, record = next(r for r in Store(home).records() if r[1].kind == "base")
    assert record.result["resumed_from"] > 0
    assert not survivors(marker)


def test_sigterm_ends_a_run_in_the_middle_of_a_long_step(migrated, text, tmp_path):
    """Prefect retries a unit whose worker died; the retry must not start another worker."""
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    how = tmp_path / "how.yaml"
    how.write_text("checkpoint_seconds: 0.2\n", encoding="utf-8")
    study = write_study(tmp_path, base_models=[{"name": "toy_llama", "steps": 50_000}])
    run = start(home, "run", study, "--execution", str(how), *text, env=marked(home, marker))
    wait_until(lambda: list(home.glob("progress/*/point-*/point.json")))
    run.send_signal(signal.SIGTERM)
    output = ended(run, 130)
    assert "interrupted; the same command continues" in output
    assert "Traceback" not in output
    wait_until(lambda: not survivors(marker))


def test_a_full_disk_stops_the_run_and_keeps_what_is_done(migrated, text, tmp_path):
    study = write_study(tmp_path)
    with small_disk(tmp_path / "disk", 48) as disk:
        home = new_home(migrated, disk / "home")
        run = start(home, "run", study, *text)
        wait_until(lambda: list((home / "artifacts").glob("held_out/jsonl*")))
        with contextlib.suppress(OSError), (disk / "filler").open("wb") as file:
            while True:
                file.write(b"0" * 4096)
                file.flush()
        output = ended(run, 3)
        assert "free some space" in output
        assert [record.kind for _, record in Store(home).records()]
        assert not list((home / "artifacts").glob("*/.attempt*"))


def test_catalog_and_mlflow_that_vanish_are_made_again(finished, text, tmp_path):
    home, study = copied_home(finished, tmp_path / "home"), write_study(tmp_path)
    for cell in (home / "artifacts" / "cell").glob("*-perplexity-*"):
        shutil.rmtree(cell)
    done = len(list(Store(home).records()))
    run = start(home, "run", study, *text)
    wait_until(lambda: len(list(Store(home).records())) > done)
    (home / "catalog.duckdb").unlink()
    (home / "mlflow").rename(home / "lost")  # at once, while the run writes into it
    ended(run)
    assert scores(home) == scores(finished)
    assert (home / "mlflow").exists()


def test_a_run_and_a_worker_among_hostile_variables_compute_each_step_once(
    finished, migrated, text, tmp_path
):
    """Variables of other programs change neither scores nor records of either process."""
    home, study = new_home(migrated, tmp_path / "home"), write_study(tmp_path)
    hostile = environment(home, **HOSTILE)
    runs = [start(home, command, study, *text, env=hostile) for command in ("run", "worker")]
    outputs = [run.communicate(timeout=HANG_SECONDS)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sum(computed(output) for output in outputs) == TINY_STEPS
    assert scores(home) == scores(finished)
    commits = [
        {record.environment["git"]["commit"] for _, record in Store(one).records()}
        for one in (home, finished)
    ]
    assert commits[0] == commits[1]
