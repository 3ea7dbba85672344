"""A catalog is built again exactly if a build could give another one.

Strategy: change a copy of a real store and its catalog in every way there is, and look at the
store's digest or the file's identity.
"""

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog import build, extraction
from catalog.build import build_catalog, refresh_catalog
from catalog.origin import Maker, state_digest
from lce_core.store.artifacts import Store
from tests.support.catalogs.sample_store import STUDY
from tests.support.digests import catalog_digest


@pytest.fixture
def home(small_sample, tmp_path) -> Path:
    return shutil.copytree(small_sample, tmp_path / "home")


@pytest.fixture
def refreshed_home(home) -> Path:
    refresh_catalog(Store(home))
    return home


def refreshes(home: Path) -> bool:
    """Refresh the catalog; return True if that made a new file."""
    before = identity(home)
    refresh_catalog(Store(home))
    return identity(home) != before


def digest(home: Path) -> str:
    return state_digest(Store(home), build._MAKER)


def shows_its_store(home: Path) -> bool:
    """Whether the catalog is what a full build gives."""
    store, fresh = Store(home), home.parent / "fresh.duckdb"
    build.write_tables(extraction.extract(store), fresh, extraction.history(store))
    return catalog_digest(home / "catalog.duckdb") == catalog_digest(fresh)


def identity(home: Path) -> tuple[int, int] | None:
    try:
        stat = (home / "catalog.duckdb").stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def a_cell(home: Path, length: int = 512) -> Path:
    (folder,) = (home / "artifacts" / "cell").glob(f"none-frozen-passkey-{length}-s2-*")
    return folder


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_what_a_catalog_does_not_show_does_not_make_it_again(refreshed_home):
    home, store = refreshed_home, Store(refreshed_home)
    assert not refreshes(home)
    attempt = home / "artifacts" / "cell" / ".attempt-000000000000-dead"
    attempt.mkdir()
    (attempt / "samples.parquet").write_bytes(b"PAR1")
    (plan,) = store.studies.plans()
    store.studies.save_plan(STUDY, plan, "elsewhere/sample.yaml")
    (a_cell(home) / "extra.parquet").write_bytes(b"PAR1")
    shutil.rmtree(home / "cache")
    (home / "progress" / "0123456789ab").mkdir()
    assert not refreshes(home)
    assert shows_its_store(home)
    before = identity(home)
    build_catalog(store)
    assert identity(home) != before, "a build that is asked for is always done"


def change_a_score(home: Path) -> None:
    record = a_cell(home) / "record.json"
    result = json.loads(record.read_bytes())["result"]
    result["scores"][0]["value"] /= 2
    edit(record, result=result)


def change_a_sample_and_set_the_time_back(home: Path) -> None:
    path = a_cell(home, 128) / "samples.parquet"
    stat = path.stat()
    flip_a_byte(path)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def change_a_loss(home: Path) -> None:
    path = next((home / "artifacts" / "finetune").glob("*/loss.jsonl"))
    path.write_text(path.read_text(encoding="utf-8").replace("512", "513"), encoding="utf-8")


def make_a_folder_for_a_cell_not_run(home: Path) -> None:
    plan = json.loads((home / "studies" / STUDY / "plan.json").read_bytes())
    folders = [home / "artifacts" / cell["folder"] for cell in plan["cells"] if cell["folder"]]
    next(folder for folder in folders if not folder.exists()).mkdir()


def note_another_failure(home: Path) -> None:
    plan = json.loads((home / "studies" / STUDY / "plan.json").read_bytes())
    cell = next(cell for cell in plan["cells"] if cell["method"] == "ntk_32k")
    failure = {"class": "data", "message": "gone", "attempts": 2, "folder": cell["folder"]}
    path = home / "failures" / f"{cell['cell']}.json"
    path.write_text(json.dumps(failure), encoding="utf-8")


def failure(home: Path) -> Path:
    return min((home / "failures").glob("*.json"))


def plan_another_study(home: Path) -> None:
    store = Store(home)
    (plan,) = store.studies.plans()
    store.studies.save_plan(
        "other", {**plan, "study": "other", "cells": plan["cells"][:5]}, "o.yaml"
    )


# Each follows the ones before it.
CHANGES: Mapping[str, Callable[[Path], object]] = {
    "a record says another score": change_a_score,
    "a cell is gone": lambda home: a_cell(home, 256).rename(home / "aside"),
    "a cell is new": lambda home: (home / "aside").rename(
        home / "artifacts" / "cell" / "none-frozen-passkey-256-s2-0123456789ab"
    ),
    "a data file has other content and its old time": change_a_sample_and_set_the_time_back,
    "a data file is gone": lambda home: (a_cell(home, 128) / "token_nll.parquet").unlink(),
    "a record is gone": lambda home: (a_cell(home) / "record.json").unlink(),
    "a loss log has other content": change_a_loss,
    "a cell's folder has no record": make_a_folder_for_a_cell_not_run,
    "a failure is new": note_another_failure,
    "a failure says something else": lambda home: edit(failure(home), attempts=7, message="no"),
    "a failure is forgotten": lambda home: failure(home).unlink(),
    "a plan says something else": lambda home: edit(
        home / "studies" / STUDY / "plan.json", hypothesis="another"
    ),
    "a study is new": plan_another_study,
    "a study is gone": lambda home: shutil.rmtree(home / "studies" / STUDY),
}


def test_whatever_changes_in_the_store_changes_its_digest(home):
    before = digest(home)
    for name, change in CHANGES.items():
        change(home)
        after = digest(home)
        assert after != before, name
        before = after
    assert digest(home) == before


def put_an_older_catalog_back(home: Path) -> None:
    older = home.parent / "older.duckdb"
    shutil.copyfile(home / "catalog.duckdb", older)
    shutil.rmtree(a_cell(home))
    refresh_catalog(Store(home))
    older.replace(home / "catalog.duckdb")


SPOILT: Mapping[str, Callable[[Path], object]] = {
    "gone": lambda home: (home / "catalog.duckdb").unlink(),
    "changed in one byte": lambda home: flip_a_byte(home / "catalog.duckdb"),
    "an older one": put_an_older_catalog_back,
    "of unknown origin": lambda home: (home / ".catalog.duckdb.origin.json").unlink(),
    "of unreadable origin": lambda home: (home / ".catalog.duckdb.origin.json").write_text("["),
}


@pytest.mark.slow
def test_a_catalog_that_is_not_as_it_was_built_is_made_again(refreshed_home):
    for name, spoil in SPOILT.items():
        spoil(refreshed_home)
        assert refreshes(refreshed_home), name
        assert not refreshes(refreshed_home), name
    assert shows_its_store(refreshed_home)


def test_a_change_while_a_catalog_is_built_is_in_the_next_one(home, monkeypatch):
    extract = extraction.extract

    def interrupted(store: Store) -> dict[str, pa.Table]:
        tables = extract(store)
        shutil.rmtree(a_cell(home))
        return tables

    with monkeypatch.context() as during:
        during.setattr(extraction, "extract", interrupted)
        build_catalog(Store(home))
    assert refreshes(home)
    assert not refreshes(home)
    assert shows_its_store(home)


def test_other_code_changes_the_digest(home, tmp_path):
    code = tmp_path / "code"
    (code / "sql").mkdir(parents=True)
    maker, digests = Maker((code,), ("duckdb",)), set()
    for name in (
        "notes.md",
        "build.py",
        "sql/overview.sql",
        "sql/columns.yaml",
        "errata.csv",
        "notes.md",
    ):
        (code / name).write_text(f"{len(digests)}", encoding="utf-8")
        digests.add(state_digest(Store(home), maker))
    assert len(digests) == 5, "a file that is no code changes nothing"


def test_of_refreshes_at_the_same_time_one_builds(refreshed_home, monkeypatch):
    extract, builds = extraction.extract, []

    def counted(store: Store) -> dict[str, pa.Table]:
        builds.append(store)
        return extract(store)

    monkeypatch.setattr(extraction, "extract", counted)
    change_a_score(refreshed_home)
    threads = [
        threading.Thread(target=refresh_catalog, args=(Store(refreshed_home),)) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
