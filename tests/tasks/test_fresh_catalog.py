"""The catalog follows the store while it is looked at, and the process ends with who holds it.

Strategy: change a copy of a small store and wait for its catalog; let go of the real process.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.queries import run_query
from lce_core.store.artifacts import Store
from tasks.fresh_catalog import BESIDE_A_RUN, Pace, catalog_kept_fresh, keep_fresh
from tasks.mending import damage
from tasks.projections import rebuild_catalog
from tasks.questions import catalog_path
from tests.support.catalogs.sample_store import STUDY, Study, sample_store
from tests.support.repository import ROOT
from tests.support.studies import wait_until

pytestmark = pytest.mark.slow
QUICK = Pace(seconds=0.02, share=0.5, creates_missing=False)


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = sample_store(tmp_path_factory.getbasetemp())
    # The plan alone: all cells are to do, and the catalog is made in no time.
    shutil.copytree(store.home / "studies", tmp_path / "studies")
    rebuild_catalog(tmp_path)
    return tmp_path


@contextlib.contextmanager
def followed(home: Path, pace: Pace = QUICK) -> Iterator[None]:
    """Keep the catalog of a home fresh in a thread."""
    ended = threading.Event()
    follower = threading.Thread(target=keep_fresh, args=(home, ended, pace))
    follower.start()
    try:
        yield
    finally:
        ended.set()
        follower.join()


def test_what_becomes_of_the_store_is_in_the_catalog_soon(home: Path) -> None:
    before = catalog_path(home).stat().st_mtime_ns
    with followed(home):
        plan = home / "studies" / STUDY / "plan.json"
        plan.write_text(plan.read_text(encoding="utf-8").replace(STUDY, "other"), encoding="utf-8")
        wait_until(lambda: catalog_path(home).stat().st_mtime_ns != before, 30)
    assert run_query(catalog_path(home), "SELECT DISTINCT study FROM studies")[1] == [("other",)]


def test_a_home_without_a_catalog_gets_none(tmp_path: Path) -> None:
    with followed(tmp_path / "none"):
        time.sleep(0.2)
    assert not (tmp_path / "none").exists()


def test_a_catalog_that_came_without_its_store_stays(home: Path) -> None:
    shutil.rmtree(home / "studies")
    before = catalog_path(home).read_bytes()
    with followed(home):
        time.sleep(0.5)
    assert catalog_path(home).read_bytes() == before


def test_the_process_ends_with_its_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tasks.fresh_catalog", str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0


def test_beside_a_run_the_first_catalog_comes_before_the_run_ends_and_grows(home: Path) -> None:
    catalog_path(home).unlink()
    pace = replace(QUICK, creates_missing=True)
    with followed(home, pace):
        wait_until(catalog_path(home).is_file, 30)
        assert done(home) == 0
        Study(Store(home), seeds=(2,)).build()
        wait_until(lambda: done(home) > 0, 30)


def done(home: Path) -> int:
    (row,) = run_query(catalog_path(home), "SELECT count(*) FROM cells WHERE status = 'done'")[1]
    return int(row[0])


def test_a_damaged_catalog_is_made_again_while_the_run_goes_on(home: Path) -> None:
    catalog_path(home).write_bytes(b"no database" * 1000)
    with followed(home):
        wait_until(lambda: len(list(home.glob("catalog.duckdb.set-aside-*"))) == 1, 30)
        wait_until(lambda: damage(home) is None, 30)


def test_polling_and_building_take_a_small_share_of_the_time(home: Path) -> None:
    pauses: list[float] = []
    returned: list[float] = []

    class Ended(threading.Event):
        """Notes the pauses, and waits for none of them."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            pauses.append(timeout)
            if returned:
                worked = time.perf_counter() - returned[-1]
                assert 0.5 * worked < timeout * BESIDE_A_RUN.share <= worked
            returned.append(time.perf_counter())
            return len(pauses) > 4

    assert BESIDE_A_RUN.share <= 0.03
    assert BESIDE_A_RUN.seconds <= 60
    keep_fresh(home, Ended(), replace(BESIDE_A_RUN, seconds=1e-4))
    assert len(pauses) == 5


def test_the_process_beside_a_short_run_ends_with_it_and_says_nothing(home: Path) -> None:
    clock = time.monotonic()
    with catalog_kept_fresh(home):
        pass
    assert time.monotonic() - clock < 30
    assert (home / "logs" / "live-results.log").read_text(encoding="utf-8") == ""
