"""The catalog follows the store while it is looked at, and the process ends with who holds it.

Strategy: change a copy of a small store and wait for its catalog; let go of the real process.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from catalog.queries import run_query
from tasks.fresh_catalog import keep_fresh
from tasks.projections import rebuild_catalog
from tasks.questions import catalog_path
from tests.support.catalogs.sample_store import STUDY, sample_store
from tests.support.repository import ROOT

pytestmark = pytest.mark.slow


@pytest.fixture
def home(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = sample_store(tmp_path_factory.getbasetemp())
    # The plan alone: all cells are to do, and the catalog is made in no time.
    shutil.copytree(store.home / "studies", tmp_path / "studies")
    rebuild_catalog(tmp_path)
    return tmp_path


def until(met: Callable[[], bool], seconds: float = 30.0) -> bool:
    end = time.monotonic() + seconds
    while not met() and time.monotonic() < end:
        time.sleep(0.02)
    return met()


def test_what_becomes_of_the_store_is_in_the_catalog_soon(home: Path) -> None:
    before, ended = catalog_path(home).stat().st_mtime_ns, threading.Event()
    follower = threading.Thread(target=keep_fresh, args=(home, ended, 0.05))
    follower.start()
    try:
        plan = home / "studies" / STUDY / "plan.json"
        plan.write_text(plan.read_text(encoding="utf-8").replace(STUDY, "other"), encoding="utf-8")
        assert until(lambda: catalog_path(home).stat().st_mtime_ns != before)
    finally:
        ended.set()
        follower.join()
    assert run_query(catalog_path(home), "SELECT DISTINCT study FROM studies")[1] == [("other",)]


def test_a_home_without_a_catalog_gets_none(tmp_path: Path) -> None:
    ended = threading.Event()
    follower = threading.Thread(target=keep_fresh, args=(tmp_path / "none", ended, 0.01))
    follower.start()
    time.sleep(0.2)
    ended.set()
    follower.join()
    assert not (tmp_path / "none").exists()


def test_a_catalog_that_came_without_its_store_stays(home: Path) -> None:
    shutil.rmtree(home / "studies")
    before, ended = catalog_path(home).read_bytes(), threading.Event()
    follower = threading.Thread(target=keep_fresh, args=(home, ended, 0.01))
    follower.start()
    time.sleep(0.5)
    ended.set()
    follower.join()
    assert catalog_path(home).read_bytes() == before


def test_the_process_ends_with_its_standard_input(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tasks.fresh_catalog", str(tmp_path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT)
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(60) == 0
