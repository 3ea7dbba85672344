"""A catalog is built again exactly if a build could give another one.

Strategy: change copies of a real store and its catalog in every way there is; whether a refresh
builds is read off the file's identity, and what it leaves is compared with a full build beside it.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog import build, extraction
from catalog.build import build_catalog, refresh_catalog
from catalog.queries import logical_digest, run_query
from lce_core.store.artifacts import Store
from tests.support.catalogs.sample_store import STUDY, Study
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a small store with done, failed and waiting cells."""
    store = Store(tmp_path_factory.mktemp("built") / "home")
    store.prepare()
    Study(store, seeds=(2,)).build()
    return store.home


@pytest.fixture
def home(built: Path, tmp_path: Path) -> Path:
    shutil.copytree(built, tmp_path / "home")
    refresh_catalog(Store(tmp_path / "home"))
    return tmp_path / "home"


def refreshed(home: Path) -> bool:
    before = identity(home)
    refresh_catalog(Store(home))
    return identity(home) != before


def shows_its_store(home: Path) -> bool:
    """Whether the catalog is what a full build gives."""
    fresh = build_catalog(Store(home), home.parent / "fresh.duckdb")
    return logical_digest(home / "catalog.duckdb") == logical_digest(fresh)


def identity(home: Path) -> tuple[int, int] | None:
    try:
        stat = (home / "catalog.duckdb").stat()
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def a_cell(home: Path) -> Path:
    (folder,) = (home / "artifacts" / "cell").glob("none-frozen-passkey-512-s2-*")
    return folder


def edit(path: Path, **changes: Any) -> None:
    content = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps({**content, **changes}), encoding="utf-8")


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def test_a_store_without_changes_keeps_its_catalog(home: Path) -> None:
    assert not refreshed(home)
    assert shows_its_store(home)


def leave_an_attempt(home: Path) -> None:
    folder = home / "artifacts" / "cell" / ".attempt-000000000000-dead"
    folder.mkdir()
    (folder / "samples.parquet").write_bytes(b"PAR1")


def save_the_plan_again(home: Path) -> None:
    store = Store(home)
    (plan,) = store.studies.plans()
    store.studies.save_plan(STUDY, plan, "elsewhere/sample.yaml")


def add_a_file_no_record_names(home: Path) -> None:
    (a_cell(home) / "extra.parquet").write_bytes(b"PAR1")


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        leave_an_attempt,
        save_the_plan_again,
        add_a_file_no_record_names,
        lambda home: shutil.rmtree(home / "cache"),
        lambda home: (home / "progress" / "0123456789ab").mkdir(),
    ],
)
def test_what_a_catalog_does_not_show_does_not_make_it_again(
    home: Path, change: Callable[[Path], object]
) -> None:
    change(home)
    assert not refreshed(home)
    assert shows_its_store(home)


def bring_a_cell_back(home: Path) -> None:
    folder, aside = a_cell(home), home.parent / "aside"
    folder.rename(aside)
    refresh_catalog(Store(home))
    aside.rename(folder)


def change_a_score(home: Path) -> None:
    record = a_cell(home) / "record.json"
    result = json.loads(record.read_bytes())["result"]
    result["scores"][0]["value"] /= 2
    edit(record, result=result)


def change_a_sample_and_set_the_time_back(home: Path) -> None:
    path = a_cell(home) / "samples.parquet"
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


CHANGES: Mapping[str, Callable[[Path], object]] = {
    "a cell is gone": lambda home: shutil.rmtree(a_cell(home)),
    "a cell is new": bring_a_cell_back,
    "a record says another score": change_a_score,
    "a record is spoilt": lambda home: (a_cell(home) / "record.json").write_text("{}"),
    "a record is gone": lambda home: (a_cell(home) / "record.json").unlink(),
    "a data file is shorter": lambda home: (a_cell(home) / "samples.parquet").write_bytes(b"PAR"),
    "a data file has other content": lambda home: flip_a_byte(a_cell(home) / "samples.parquet"),
    "a data file has other content and its old time": change_a_sample_and_set_the_time_back,
    "a data file is gone": lambda home: (a_cell(home) / "token_nll.parquet").unlink(),
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


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_whatever_changes_in_the_store_makes_the_catalog_again_once(
    home: Path, change: Callable[[Path], object]
) -> None:
    change(home)
    assert refreshed(home)
    assert not refreshed(home)
    assert shows_its_store(home)


def put_an_older_catalog_back(home: Path) -> None:
    older = home.parent / "older.duckdb"
    shutil.copyfile(home / "catalog.duckdb", older)
    shutil.rmtree(a_cell(home))
    refresh_catalog(Store(home))
    older.replace(home / "catalog.duckdb")


SPOILT: Mapping[str, Callable[[Path], object]] = {
    "gone": lambda home: (home / "catalog.duckdb").unlink(),
    "empty": lambda home: (home / "catalog.duckdb").write_bytes(b""),
    "changed in one byte": lambda home: flip_a_byte(home / "catalog.duckdb"),
    "an older one": put_an_older_catalog_back,
    "of unknown origin": lambda home: (home / ".catalog.duckdb.origin.json").unlink(),
    "of unreadable origin": lambda home: (home / ".catalog.duckdb.origin.json").write_text("["),
}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", SPOILT.values(), ids=SPOILT.keys())
def test_a_catalog_that_is_not_as_it_was_built_is_made_again(
    home: Path, spoil: Callable[[Path], object]
) -> None:
    spoil(home)
    assert refreshed(home)
    assert not refreshed(home)
    assert shows_its_store(home)


def test_a_change_while_a_catalog_is_built_is_in_the_next_one(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract = extraction.extract

    def interrupted(store: Store) -> dict[str, pa.Table]:
        tables = extract(store)
        shutil.rmtree(a_cell(home))
        return tables

    with monkeypatch.context() as during:
        during.setattr(extraction, "extract", interrupted)
        build_catalog(Store(home))
    assert refreshed(home)
    assert not refreshed(home)
    assert shows_its_store(home)


def test_other_code_makes_the_catalog_again(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = tmp_path / "catalog"
    shutil.copytree(ROOT / "catalog", copied, ignore=shutil.ignore_patterns("__pycache__"))
    maker = replace(build._MAKER, folders=(copied, ROOT / "lce_core"))
    monkeypatch.setattr(build, "_MAKER", maker)
    assert not refreshed(home)
    for name in ("extraction.py", "sql/overview.sql", "reference/errata.csv"):
        with (copied / name).open("a", encoding="utf-8") as file:
            file.write("\n")
        assert refreshed(home)


def test_a_build_asked_for_is_always_done(home: Path) -> None:
    before = identity(home)
    build_catalog(Store(home))
    assert identity(home) != before
    assert not refreshed(home)


def test_of_refreshes_at_the_same_time_one_builds(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    extract, builds = extraction.extract, []

    def counted(store: Store) -> dict[str, pa.Table]:
        builds.append(store)
        return extract(store)

    monkeypatch.setattr(extraction, "extract", counted)
    change_a_score(home)
    threads = [threading.Thread(target=refresh_catalog, args=(Store(home),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    cells = "SELECT count(*) FROM cells WHERE status = 'done'"
    assert run_query(home / "catalog.duckdb", cells)[1][0][0] > 0
