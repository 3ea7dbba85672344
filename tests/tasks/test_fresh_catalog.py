"""The catalog follows the store while it is looked at, and the process ends with who holds it."""

import shutil
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from catalog import catalog_path
from catalog.queries import run_query
from tasks.fresh_catalog import Pace, catalog_kept_fresh, keep_fresh
from tasks.mending import damage
from tasks.projections import rebuild_catalog
from tests.support.catalogs.sample_store import STUDY

pytestmark = pytest.mark.slow
QUICK = Pace(seconds=0.02, share=0.5, creates_missing=False)


class Polls(threading.Event):
    """Ends the loop after one poll, without waiting."""

    polled = False

    def wait(self, timeout: float | None = None) -> bool:
        was_polled, self.polled = self.polled, True
        return was_polled


@pytest.fixture
def home(sample, tmp_path) -> Path:
    # The plan alone: all cells are to do, and the catalog is made in no time.
    shutil.copytree(sample / "studies", tmp_path / "studies")
    rebuild_catalog(tmp_path)
    return tmp_path


def test_what_becomes_of_the_store_is_in_the_catalog_at_the_next_poll(home):
    plan = home / "studies" / STUDY / "plan.json"
    plan.write_text(plan.read_text(encoding="utf-8").replace(STUDY, "other"), encoding="utf-8")
    keep_fresh(home, Polls(), QUICK)
    assert run_query(catalog_path(home), "SELECT DISTINCT study FROM studies")[1] == [("other",)]


def test_a_home_without_a_catalog_gets_none_and_a_catalog_without_its_store_stays(home):
    keep_fresh(home / "none", Polls(), QUICK)
    assert not (home / "none").exists()
    shutil.rmtree(home / "studies")
    before = catalog_path(home).read_bytes()
    keep_fresh(home, Polls(), QUICK)
    assert catalog_path(home).read_bytes() == before


def test_beside_a_run_the_first_catalog_comes_before_the_run_ends_and_grows(small_sample, home):
    def num_done() -> int:
        count = "SELECT count(*) FROM cells WHERE status = 'done'"
        return int(run_query(catalog_path(home), count)[1][0][0])

    catalog_path(home).unlink()
    pace = replace(QUICK, creates_missing=True)
    keep_fresh(home, Polls(), pace)
    assert num_done() == 0
    shutil.copytree(small_sample / "artifacts", home / "artifacts", dirs_exist_ok=True)
    keep_fresh(home, Polls(), pace)
    assert num_done() > 0


def test_a_damaged_catalog_is_made_again_while_the_run_goes_on(home):
    catalog_path(home).write_bytes(b"no database" * 1000)
    keep_fresh(home, Polls(), QUICK)
    assert len(list(home.glob("catalog.duckdb.set-aside-*"))) == 1
    assert damage(home) is None


def test_the_process_beside_a_short_run_ends_with_it_and_says_nothing(home):
    with catalog_kept_fresh(home):
        pass
    assert (home / "logs" / "live-results.log").read_text(encoding="utf-8") == ""
