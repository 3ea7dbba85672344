"""What differs and should not is listed, and what was computed again is shown.

Strategy: copies of a store whose cells are made alike, in which one fact of one record is changed.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from catalog.build import build_catalog, refresh_catalog
from catalog.queries import run_query
from lce_core.store.artifacts import Store
from lce_core.store.records import Record, sealed
from lce_core.store.verification import Metric, Verification, compare, keep, not_computed
from tests.catalog.test_catalog import ask
from tests.support.catalogs.sample_store import STUDY

Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def store(sample, tmp_path) -> Store:
    return Store(shutil.copytree(sample, tmp_path / "home"))


def changed(store: Store, pattern: str, change: Change) -> int:
    """Edit records and seal them again, which no run does; return how many."""
    paths = sorted(store.home.glob(f"artifacts/{pattern}/record.json"))
    for path in paths:
        record = json.loads(path.read_text(encoding="utf-8"))
        change(record)
        path.write_text(json.dumps(sealed(record)), encoding="utf-8")
    return len(paths)


def violations(store: Store) -> list[dict[str, Any]]:
    return ask(build_catalog(store), "FROM control_violations")


def number_of(catalog: Path, where: str) -> int:
    return int(run_query(catalog, f"SELECT count(*) FROM scores WHERE {where}")[1][0][0])


def test_a_study_of_equal_parts_has_no_violation(store):
    assert violations(store) == []


def the_same(record: dict[str, Any], **values: Any) -> None:
    record["spec"] |= values


# A cell of each benchmark and length, the change to it, and what names it; `...` is this machine's.
CELLS: Mapping[tuple[str, int], tuple[Change, str, str, Any]] = {
    ("passkey", 128): (
        lambda r: the_same(r, benchmark={"name": "passkey", "version": 2}),
        "benchmark", '{"name":"passkey","version":2}', '{"name":"passkey","version":1}',
    ),
    ("passkey", 256): (
        lambda r: the_same(r, evaluation={"precision": "bf16"}),
        "evaluation", '{"precision":"bf16"}', None,
    ),
    ("passkey", 512): (lambda r: the_same(r, data="ab"), "data", "ab", None),
    ("needle", 128): (lambda r: r["result"].update(kernel="cudnn"), "kernel", "cudnn", "sdpa"),
    ("needle", 256): (
        lambda r: r["environment"].update(cpu="other", instructions=None),
        "hardware", "other", ...,
    ),
    ("needle", 512): (
        lambda r: r["environment"].update(cpu="EPYC", instructions="AVX512"),
        "hardware", "EPYC, AVX512", ...,
    ),
    ("perplexity", 128): (
        lambda r: r["environment"]["libraries"].update(torch="0.1"), "library torch", "0.1", ...,
    ),
    ("perplexity", 256): (
        lambda r: r["environment"]["libraries"].update(new="1"), "library new", "1", None,
    ),
    ("perplexity", 512): (
        lambda r: r["environment"].update(git={"commit": "c0", "dirty": True}),
        "code", "c0 with changes", ...,
    ),
}  # fmt: skip


def test_a_cell_that_differs_from_those_beside_it_is_named(store):
    same = {"name": "passkey", "version": 1}
    changed(store, "cell/*-passkey-*", lambda record: the_same(record, benchmark=same))
    for (benchmark, length), (change, *_) in CELLS.items():
        assert changed(store, f"cell/yarn-tuned-{benchmark}-{length}-s1-*", change) == 1
    found = {(row["benchmark"], row["eval_length"]): row for row in violations(store)}
    assert found.keys() == CELLS.keys()
    for (benchmark, length), (_, factor, value, usual) in CELLS.items():
        row = found[benchmark, length]
        among = "exact attention" if factor == "kernel" else "all"
        beside = number_of(
            store.home / "catalog.duckdb",
            f"is_default AND benchmark = '{benchmark}' AND eval_length = {length}"
            + " AND exact_attention" * (factor == "kernel"),
        )
        assert usual is ... or row["usual"] == usual
        assert {**row, "usual": ...} == {
            "study": STUDY, "base_model": "toy_llama", "benchmark": benchmark,
            "task": "stdlib" if benchmark == "perplexity" else benchmark,
            "eval_length": length, "factor": factor, "among": among, "value": value,
            "num_cells": 1, "methods": "yarn tuned", "usual": ..., "num_usual": beside - 1,
        }  # fmt: skip


# A training run, the change to it, and what names it.
TRAININGS: Mapping[tuple[str, int], tuple[Change, str, str]] = {
    ("yarn", 0): (lambda r: r["result"].update(tokens=99), "training tokens", "99"),
    ("yarn", 1): (
        lambda r: the_same(r, training={"learning_rate": 1.0}),
        "training recipe", '{"learning_rate":1.0}',
    ),
    ("yarn", 2): (lambda r: the_same(r, train_positions="bf16"), "training positions", "bf16"),
    ("pi", 0): (
        lambda r: r["result"].update(state_precision="bf16"), "training precision", "bf16",
    ),
    ("pi", 1): (
        lambda r: r["environment"]["libraries"].update(torch="0.1"),
        "training library torch", "0.1",
    ),
    ("pi", 2): (
        lambda r: r["environment"].update(accelerators=["H100"]), "training hardware", "H100",
    ),
}  # fmt: skip


def test_weights_that_were_trained_otherwise_are_named_in_every_cell_they_are_in(store):
    for (method, seed), (change, *_) in TRAININGS.items():
        assert changed(store, f"finetune/*-{method}-s{seed}-*", change) == 1
    rows = violations(store)
    assert {row["factor"] for row in rows} == {factor for _, factor, _ in TRAININGS.values()}
    for (method, seed), (_, factor, value) in TRAININGS.items():
        found = [row for row in rows if row["factor"] == factor]
        assert {(row["among"], row["value"], row["methods"]) for row in found} == {
            ("tuned", value, f"{method} tuned")
        }
        number = number_of(
            store.home / "catalog.duckdb",
            f"method = '{method}' AND NOT frozen AND seed = {seed} AND is_default",
        )
        assert sum(row["num_cells"] for row in found) == number == len(found)


def own_code(sha256: str, version: int = 1) -> Change:
    code = {"version": version, "sha256": sha256 * 64, "file": f"{sha256}/mine.py"}
    return lambda record: record.update(plugins={"methods/mine": code})


def test_other_code_of_a_plugin_under_one_version_is_named(store):
    changed(store, "cell/*-passkey-*", own_code("a"))
    assert changed(store, "cell/yarn-tuned-passkey-256-s1-*", own_code("b", version=2)) == 1
    assert changed(store, "cell/yarn-tuned-passkey-512-s1-*", own_code("b")) == 1
    (found,) = violations(store)
    assert found["factor"] == "code of methods/mine VERSION 1"
    assert (found["eval_length"], found["num_cells"]) == (512, 1)
    assert (found["value"], found["usual"]) == ("b" * 12, "a" * 12)


def test_other_code_of_a_plugin_in_the_training_behind_a_cell_is_named(store):
    changed(store, "cell/yarn-tuned-passkey-512-s1-*", own_code("a"))
    changed(store, "finetune/*", own_code("b"))
    found = [one for one in violations(store) if one["eval_length"] == 512]
    assert {one["factor"] for one in found} == {"code of methods/mine VERSION 1"}
    assert "a" * 12 in {one["value"] for one in found}


def test_tokens_of_all_stages_count(store: Store) -> None:
    # Two runs of 2,560 tokens one after the other, against one of 2,560.
    (first,) = (json.loads(p.read_text()) for p in store.home.glob(
        "artifacts/finetune/*-pi-s0-*/record.json"))  # fmt: skip
    fingerprint = first["fingerprint"]
    changed(store, "finetune/*-yarn-s0-*", lambda r: r["parents"].update(base=fingerprint))
    tokens = [row for row in violations(store) if row["factor"] == "training tokens"]
    assert {(row["value"], row["usual"], row["methods"]) for row in tokens} == {
        ("5120", "2560", "yarn tuned")
    }


def test_another_base_of_the_same_seed_is_named(store):
    (other,) = (json.loads(p.read_text()) for p in store.home.glob(
        "artifacts/base/*-s1-*/record.json"))  # fmt: skip
    changed(store, "finetune/*-yarn-s0-*", lambda r: r["parents"].update(base=other["fingerprint"]))
    found = violations(store)
    assert {(row["factor"], row["among"], row["value"], row["methods"]) for row in found} == {
        ("weights", "seed 0", other["fingerprint"][:12], "yarn tuned")
    }


def a_cell(store: Store) -> tuple[Path, Record]:
    (folder,) = store.home.glob("artifacts/cell/none-frozen-perplexity-512-s0-*")
    return folder, Record.read(folder)


def test_what_was_computed_again_makes_a_catalog_that_has_it_beside_the_scores(store):
    cell, path = a_cell(store), refresh_catalog(store)
    before = path.stat().st_ino
    assert ask(path, "FROM verifications") == []
    assert refresh_catalog(store).stat().st_ino == before
    keep(store.home, compare(cell, cell, 0.0))
    assert refresh_catalog(store).stat().st_ino != before
    rows = ask(path, "FROM verifications")
    scores = ask(path, f"FROM scores WHERE cell = '{cell[1].fingerprint[:12]}'")
    assert [(row["metric"], row["committed"], row["again"], row["difference"]) for row in rows] == [
        (row["metric"], row["value"], row["value"], 0.0) for row in scores
    ]
    assert len(rows) == 2
    assert {(row["study"], row["method"], row["agrees"], row["error"]) for row in rows} == {
        (STUDY, "none", True, None)
    }


def test_a_failed_verification_and_one_of_a_forgotten_cell_are_rows(store):
    folder, record = a_cell(store)
    keep(store.home, not_computed(record, "no data", 0.0))
    other = compare((folder, record), (folder, record), 0.0).model_dump()
    other |= {"cell": "0123456789ab", "metrics": [Metric(metric="x", committed=1.0, again=2.0)]}
    keep(store.home, Verification.model_validate(other))
    (store.home / "verifications" / "broken.json").write_text("{", encoding="utf-8")
    rows = ask(build_catalog(store), "FROM verifications ORDER BY cell")
    found = [(row["study"], row["metric"], row["difference"], row["error"]) for row in rows]
    assert sorted(found, key=str) == [
        (STUDY, None, None, "no data"), (None, "x", 1.0, None)
    ]  # fmt: skip
