"""A run whose surroundings are hostile: variables, a silent server, databases that vanish.

Strategy: real runs in new homes, most of them disturbed while cells are computed, compared with the
small study that nothing disturbed.
"""

import shutil
import time

import pytest

from lce_core.store.artifacts import Store
from tests.support.hostile_variables import HOSTILE
from tests.support.processes import marked, new_marker, playing, require_no_dump, survivors
from tests.support.studies import (
    HANG_SECONDS,
    TINY_STEPS,
    computed,
    copied_home,
    ended,
    environment,
    new_home,
    scores,
    start,
    wait_until,
    write_study,
)

pytestmark = pytest.mark.slow

SILENT_SECONDS = 20


def test_a_server_that_is_silent_for_20_seconds_delays_nothing_but_its_records(
    finished, migrated, text, tmp_path
):
    home, marker = new_home(migrated, tmp_path / "home"), new_marker()
    run = start(home, "run", write_study(tmp_path), *text, env=marked(home, marker))
    wait_until(lambda: list(Store(home).records()))
    (server,) = playing(marker, "server")
    server.suspend()
    time.sleep(SILENT_SECONDS)
    server.resume()
    output = ended(run)
    require_no_dump(output)
    assert computed(output) == TINY_STEPS
    assert scores(home) == scores(finished)
    wait_until(lambda: not survivors(marker))


def test_variables_for_other_programs_change_neither_scores_nor_records(
    finished, migrated, text, tmp_path
):
    home = new_home(migrated, tmp_path / "home")
    run = start(home, "run", write_study(tmp_path), *text, env=environment(home, **HOSTILE))
    output = ended(run)
    assert computed(output) == TINY_STEPS
    assert scores(home) == scores(finished)
    ours, expected = ([record for _, record in Store(one).records()] for one in (home, finished))
    commits = [
        {one.environment["git"]["commit"] for one in records} for records in (ours, expected)
    ]
    assert commits[0] == commits[1]


def test_catalog_and_mlflow_that_vanish_are_made_again(finished, text, tmp_path):
    home, study = copied_home(finished, tmp_path / "home"), write_study(tmp_path)
    for cell in (home / "artifacts" / "cell").glob("*-perplexity-*"):
        shutil.rmtree(cell)
    done = len(list(Store(home).records()))
    run = start(home, "run", study, *text)
    wait_until(lambda: len(list(Store(home).records())) > done)
    (home / "catalog.duckdb").unlink()
    shutil.rmtree(home / "mlflow")
    ended(run)
    assert scores(home) == scores(finished)
    assert (home / "mlflow").exists()


def test_a_run_and_a_worker_at_once_compute_each_step_once(finished, migrated, text, tmp_path):
    home, study = new_home(migrated, tmp_path / "home"), write_study(tmp_path)
    runs = [start(home, command, study, *text) for command in ("run", "worker")]
    outputs = [run.communicate(timeout=HANG_SECONDS)[0] for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    assert sum(computed(output) for output in outputs) == TINY_STEPS
    assert scores(home) == scores(finished)
