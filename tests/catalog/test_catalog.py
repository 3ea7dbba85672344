"""The catalog says what the store holds, survives damage, and can be read but not written.

Strategy: DuckDB files of a real store against its records as JSON, and copies broken on purpose.
"""

import csv
import errno
import io
import json
import math
import re
import shutil
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from catalog.build import build_catalog
from catalog.extraction import _read_parquet, _table
from catalog.formatting import format_rows
from catalog.limits import limits
from catalog.queries import open_catalog, read_blocks, run_query
from lce_core.errors import DataError, SpecError
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import SAMPLES
from lce_core.store.identity import sha256_file
from lce_core.store.records import sealed
from tests.support.catalogs.holed_catalog import Cell, written
from tests.support.catalogs.sample_store import STUDY
from tests.support.digests import catalog_digest
from tests.support.repository import ROOT

DOCUMENT = ROOT / "docs" / "catalog.md"
CONTRACT = {
    "scores": "study base_model method seed train_length benchmark task metric eval_length value"
    " ci_low ci_high num_samples higher_is_better exact_attention frozen profile cell checkpoint"
    " created_at",
    "samples": "cell sample eval_length depth num_prompt_tokens prediction reference score cluster",
    "study_samples": "study base_model method frozen variant seed benchmark task cell sample",
    "same_computation": "study base_model method frozen other_method other_frozen",
    "costs": "study base_model method frozen variant train_tokens train_flops train_seconds"
    " peak_memory_gb num_cells eval_seconds eval_tokens eval_flops",
    "training_runs": "study base_model method frozen checkpoint is_finetuning is_last corpus"
    " num_steps row_length settings seconds",
    "view_columns": "view_name column_name data_type comment view_comment",
    "cells": "study base_model method seed benchmark task eval_length status reason attempts"
    " seconds cell frozen",
    "overview": "study base_model method frozen exact_attention perplexity needle passkey many_shot"
    " longbench ruler num_seeds perplexity_longest needle_longest passkey_longest target_context"
    " longest_length num_missing",
    "score_by_length": "study base_model method frozen benchmark task metric eval_length value"
    " lowest highest num_seeds unit higher_is_better exact_attention",
    "lost_and_gained": "study base_model method frozen benchmark within_length lost beyond_length"
    " gained unit train_tokens variant reason",
    "nll_by_position": "study base_model method frozen benchmark task eval_length position_bin nll"
    " lowest highest num_seeds",
    "trainings": "checkpoint step tokens loss learning_rate tokens_per_second mfu grad_norm"
    " peak_memory_bytes",
    "token_nll": "cell position_bin nll",
    "paired_difference": "study base_model method frozen other_method other_frozen benchmark task"
    " eval_length difference ci_low ci_high p_value p_adjusted verdict smallest_detectable"
    " num_needed generalises_to family num_comparisons num_clusters num_samples num_seeds lowest"
    " highest num_better num_worse",
    "effective_length": "study base_model method frozen benchmark task tokens ci_low ci_high"
    " longest",
    "perplexity_vs_downstream": "study base_model method frozen exact_attention eval_length"
    " perplexity benchmark value",
    "claims": "claim study base_model num_comparisons num_confirmed num_contradicted"
    " num_on_one_run num_undecided num_not_measured",
    "perplexity_agreement": "study base_model benchmark eval_length methods num_methods spearman"
    " spearman_low spearman_high kendall kendall_low kendall_high p_value",
    "paper_comparison": "study base_model method frozen benchmark task eval_length profile paper"
    " place value paper_value difference rank paper_rank",
    "paper_agreement": "study base_model paper place benchmark task eval_length num_columns"
    " num_methods spearman spearman_low spearman_high kendall kendall_low kendall_high",
}


@pytest.fixture(scope="module")
def store(sample) -> Store:
    return Store(sample)


@pytest.fixture(scope="module")
def catalog(sample) -> Path:
    return sample / "catalog.duckdb"


@pytest.fixture
def copied(sample, tmp_path) -> Store:
    return Store(shutil.copytree(sample, tmp_path / "home"))


def ask(catalog: Path, sql: str) -> list[dict[str, Any]]:
    columns, rows = run_query(catalog, sql)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def views(catalog: Path) -> list[str]:
    sql = (
        "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"
        " ORDER BY view_oid"
    )
    return [row["view_name"] for row in ask(catalog, sql)]


def a_cell(store: Store, name: str = "none-frozen-passkey-512-s0") -> Path:
    (folder,) = (store.home / "artifacts" / "cell").glob(f"{name}-*")
    return folder


def test_every_score_is_the_one_of_its_record(store, catalog):
    names = ("metric", "value", "ci_low", "ci_high", "num_samples")
    recorded = set()
    for path in (store.home / "artifacts" / "cell").glob("*/record.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        for score in record["result"]["scores"]:
            is_default = score["metric"] == record["result"]["default_metric"]
            values = (score[name] for name in names)
            recorded.add((record["fingerprint"][:12], is_default, *values))
    columns = ("cell", "is_default", *names)
    shown = [tuple(row[name] for name in columns) for row in ask(catalog, "FROM scores")]
    assert len(shown) == len(recorded)
    assert set(shown) == recorded


def test_losses_and_gains_are_those_of_the_means_in_one_unit(catalog):
    sql = "FROM benchmark_by_length JOIN studies USING (study, base_model)"
    means = {
        (r["variant"], r["benchmark"], r["eval_length"]): r
        for r in ask(catalog, sql)
        if r["value"] is not None
    }

    def better(variant: str, benchmark: str, length: int) -> float:
        row, base = (means[one, benchmark, length] for one in (variant, "none"))
        if row["unit"] == "perplexity":
            return math.log(base["value"] / row["value"])
        return (row["value"] - base["value"]) * (1 if row["higher_is_better"] else -1)

    found = ask(catalog, "FROM lost_and_gained WHERE reason IS NULL")
    assert {row["unit"] for row in found} >= {"nats", "accuracy"}
    for row in found:
        who = row["variant"], row["benchmark"]
        assert row["lost"] == pytest.approx(-better(*who, row["within_length"]), abs=1e-12)
        assert row["gained"] == pytest.approx(better(*who, row["beyond_length"]), abs=1e-12)
        (study,) = ask(catalog, f"FROM studies WHERE study = '{row['study']}'")
        assert row["within_length"] <= study["trained_context"] < row["beyond_length"]


def test_a_loss_or_gain_that_cannot_be_compared_is_null_and_says_why(tmp_path):
    def cells(benchmark: str, none: dict[int, float], pi: dict[int, float | None]):
        for method, values in {"none": none, "pi": pi}.items():
            for length, value in values.items():
                state = "done" if value is not None else "failed"
                task = f"of {length}" if benchmark == "ruler" else "of all lengths"
                yield Cell(method, True, 0, benchmark, task, length, state, value or 0.0)

    drawn = [
        *cells("short_context", {128: 0.5}, {128: 0.375}),
        *cells("perplexity", {64: 8.0, 128: 4.0, 256: 16.0}, {64: 8.0, 128: 5.0, 256: 4.0}),
        *cells("needle", {128: 0.5, 512: 0.0}, {128: 0.5, 512: None}),
        *cells("passkey", {128: 1.0}, {128: 0.75, 512: 0.5}),
        *cells("multi_key", {}, {512: 0.5, 1024: 0.5}),
        *cells("ruler", {128: 0.5, 512: 0.0}, {128: 0.5, 512: 0.25}),
    ]
    columns = "within_length, lost, beyond_length, gained, reason"
    sql = f"SELECT benchmark, {columns} FROM lost_and_gained WHERE method = 'pi' ORDER BY ALL"
    within, beyond = "within the trained context", "beyond the trained context"
    assert [tuple(row.values()) for row in ask(written(tmp_path, [drawn]), sql)] == [
        ("multi_key", None, None, None, None,
         f"no length {within}; base model not evaluated {beyond}"),
        ("needle", 128, 0.0, 512, None, f"no result at 512 tokens {beyond}"),
        ("passkey", 128, 0.25, None, None, f"base model not evaluated {beyond}"),
        ("perplexity", 128, pytest.approx(math.log(1.25)), 256, pytest.approx(math.log(4)), None),
        ("ruler", 128, 0.0, None, None, f"no length {beyond}"),
        ("ruler", None, None, 512, 0.25, f"no length {within}"),
        ("short_context", 128, 0.125, None, None, f"no length {beyond}"),
    ]  # fmt: skip


def test_each_cell_without_a_result_says_why(catalog):
    rows = ask(
        catalog,
        "SELECT method, frozen, status, regexp_replace(reason, '[0-9a-f]{12}', 'ID') AS reason,"
        " count(*) AS cells FROM missing_cells GROUP BY ALL ORDER BY ALL",
    )
    told = {
        (row["method"], row["frozen"], row["status"], row["reason"]): row["cells"] for row in rows
    }
    assert told == {
        ("lm_infinite", True, "unavailable", "prompt: got 1030 tokens; expected 1024; cut"): 1,
        ("ntk_32k", False, "missing", "waits for finetune ID"): 14,
        (
            "ntk_32k", False, "missing",
            "finetune ID failed: data: rows.bin: got token 9999; expected the vocabulary; pack",
        ): 14,
        ("pi", True, "unavailable", "eval length 1024 exceeds the 512 tokens that pi supports"): 12,
        ("self_extend", True, "missing", "not run yet"): 1,
        (
            "yarn", False, "failed",
            "non_finite: sample 3: got NaN <script>alert(1)</script>; expected a number; look",
        ): 1,
    }  # fmt: skip
    (failed,) = ask(catalog, "FROM cells WHERE status = 'failed'")
    assert (failed["attempts"], failed["seconds"]) == (1, None)


def test_a_reader_keeps_its_snapshot_while_a_catalog_without_a_lost_cell_is_swapped_in(
    copied, catalog
):
    path = build_catalog(copied)
    assert path == copied.home / "catalog.duckdb"
    assert catalog_digest(path) == catalog_digest(catalog)
    count = "SELECT count(*) FROM cells WHERE status = 'done'"
    with open_catalog(path) as reader:
        before = reader.execute(count).fetchall()
        shutil.rmtree(a_cell(copied))
        build_catalog(copied)
        assert reader.execute(count).fetchall() == before
        assert run_query(path, count)[1][0][0] == before[0][0] - 1
    assert catalog_digest(path) != catalog_digest(catalog)


@pytest.mark.slow
def test_builders_at_the_same_time_take_turns_and_leave_nothing_behind(copied, catalog):
    left = copied.home / ".catalog.duckdb.aside-of-a-killed-builder"
    left.mkdir()
    builders = [
        threading.Thread(target=build_catalog, args=(Store(copied.home),)) for _ in range(2)
    ]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert catalog_digest(copied.home / "catalog.duckdb") == catalog_digest(catalog)
    assert list(copied.home.glob(".catalog.duckdb.aside-*")) == []


def test_a_build_that_fails_leaves_the_earlier_catalog(copied, monkeypatch):
    path = build_catalog(copied)
    before = sha256_file(path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("catalog.build.write_tables", full)
    with pytest.raises(OSError, match="No space left"):
        build_catalog(copied)
    assert sha256_file(path) == before
    assert list(copied.home.glob(".catalog.duckdb.aside-*")) == []


def change_a_byte(folder: Path) -> None:
    content = bytearray((folder / "samples.parquet").read_bytes())
    content[20] ^= 1
    (folder / "samples.parquet").write_bytes(content)


def seal_rubbish(folder: Path) -> None:
    """What a defect would do: the record vouches for a file that is no Parquet."""
    path, record = folder / "samples.parquet", folder / "record.json"
    path.write_bytes(b"not parquet")
    content = json.loads(record.read_text(encoding="utf-8"))
    content["files"]["samples.parquet"] = {"bytes": 11, "sha256": sha256_file(path)}
    record.write_text(json.dumps(sealed(content)), encoding="utf-8")


def change_the_record(folder: Path, value: object, seal: Callable[[Any], Any]) -> None:
    record = folder / "record.json"
    content = json.loads(record.read_text(encoding="utf-8"))
    content["result"]["scores"][0]["value"] = value
    record.write_text(json.dumps(seal(content)), encoding="utf-8")


DAMAGE: Mapping[str, Callable[[Path], object]] = {
    "its record.json was changed after it was written": lambda folder: change_the_record(
        folder, 7.5, lambda content: content
    ),
    "samples.parquet has 4 bytes; its record says": lambda folder: (
        folder / "samples.parquet"
    ).write_bytes(b"PAR1"),
    "the content of a file is not what its record says": change_a_byte,
    "token_nll.parquet is missing": lambda folder: (folder / "token_nll.parquet").unlink(),
    "its record.json cannot be read": lambda folder: (folder / "record.json").write_text("{}"),
    "samples.parquet: got Parquet magic bytes not found": seal_rubbish,
    "1 validation error for": lambda folder: change_the_record(folder, "high", sealed),
}


def test_a_damaged_artifact_costs_its_own_cell_and_no_other(copied, catalog):
    cells = [
        a_cell(copied, f"none-frozen-{benchmark}-{length}-s0")
        for benchmark in ("passkey", "needle")
        for length in (128, 256, 512, 1024)
    ]
    damaged = dict(zip(DAMAGE, cells, strict=False))
    for why, folder in damaged.items():
        DAMAGE[why](folder)
    built = build_catalog(copied)
    for why, folder in damaged.items():
        (row,) = ask(built, f"FROM cells WHERE cell = '{folder.name[-12:]}'")
        assert row["status"] == "missing"
        assert f"damaged: {why}" in row["reason"]
    lost = ", ".join(f"'{folder.name[-12:]}'" for folder in damaged.values())
    for view in ("scores", "samples", "token_nll"):
        assert ask(built, f"FROM {view} WHERE cell IN ({lost})") == []
        others = f"FROM {view} WHERE cell NOT IN ({lost})"
        assert ask(built, others) == ask(catalog, others)


def test_a_cell_of_two_studies_has_a_row_in_both_and_its_samples_once(copied, catalog):
    (plan,) = copied.studies.plans()
    copied.studies.save_plan(
        "other", {**plan, "study": "other", "cells": plan["cells"][:5]}, "o.yaml"
    )
    built = build_catalog(copied)
    counts = "SELECT study, count(*) AS n FROM cells GROUP BY ALL ORDER BY ALL"
    assert ask(built, counts) == [
        {"study": "other", "n": 5},
        {"study": STUDY, "n": len(plan["cells"])},
    ]
    samples = "SELECT count(*) AS n FROM samples"
    assert ask(built, samples) == ask(catalog, samples)


def test_a_store_without_a_study_gives_an_empty_catalog_with_all_views(tmp_path, catalog):
    store = Store(tmp_path)
    store.prepare()
    built = build_catalog(store)
    assert views(built) == views(catalog)
    full = [view for view in views(built) if ask(built, f"FROM {view} LIMIT 1")]
    papers = ["paper_errata", "paper_hyperparameters", "paper_scores", "paper_tables"]
    assert full == [*papers, "view_columns"]


def test_a_statement_that_is_not_one_read_is_refused_and_changes_nothing(catalog, tmp_path):
    catalog = Path(shutil.copy(catalog, tmp_path))
    before, beside = sha256_file(catalog), sorted(catalog.parent.iterdir())
    for sql in (
        "INSERT INTO store.cell SELECT * FROM store.cell",
        "WITH gone AS (DELETE FROM store.score RETURNING *) FROM gone",
        "CREATE TABLE t AS SELECT 1",
        "CREATE TEMP TABLE t AS SELECT 1",
        "DROP VIEW scores",
        "COPY scores TO 'x.csv'",
        "EXPORT DATABASE 'x'",
        "ATTACH 'x.duckdb'",
        "SET threads = 1",
        "PRAGMA database_list",
        "CALL pragma_version()",
        "INSTALL httpfs",
        "LOAD json",
        "CHECKPOINT",
        "BEGIN",
        "CONNECT 'x'",
        "SELECT 1; DELETE FROM store.score",
        "-- nothing",
        "SELECT '\udcff'",  # what Python makes of a byte that is not UTF-8 on a command line
    ):
        with pytest.raises(SpecError) as caught:
            run_query(catalog, sql)
        assert caught.value.where == "SQL", sql
    assert sha256_file(catalog) == before
    assert sorted(catalog.parent.iterdir()) == beside
    for sql in ("DESCRIBE scores", "SHOW TABLES", "EXPLAIN FROM cells", "VALUES (1);"):
        assert run_query(catalog, sql)[1]


def test_a_query_reaches_nothing_but_the_catalog(catalog):
    for source in (
        "read_text('/etc/hostname')",
        "'/etc/hostname'",
        "glob('/*')",
        "read_csv('http://127.0.0.1:9/x.csv')",
        "connection",
    ):
        with pytest.raises(SpecError):
            run_query(catalog, f"FROM {source}")


def test_an_unknown_column_or_view_is_answered_with_candidates(catalog):
    with pytest.raises(SpecError, match="eval_length"):
        run_query(catalog, "SELECT eval_lenght FROM scores")
    with pytest.raises(SpecError, match="nll_by_position, overview"):
        run_query(catalog, "FROM skores")


def test_a_query_that_takes_too_long_is_stopped(catalog):
    endless = "SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000) b"
    with pytest.raises(SpecError, match=r"at most 0\.2 s"):
        list(read_blocks(catalog, endless, 0.2, within=limits()))


def test_where_there_is_no_catalog_the_error_says_how_to_make_one(tmp_path):
    (tmp_path / "text.duckdb").write_text("not a database, only text", encoding="utf-8")
    for name in ("none.duckdb", "text.duckdb"):
        with pytest.raises(SpecError, match="lce rebuild catalog"):
            run_query(tmp_path / name, "SELECT 1")
    assert not (tmp_path / "none.duckdb").exists()


def test_a_table_fits_the_terminal_and_names_every_column(catalog):
    for view in views(catalog):
        columns, rows = run_query(catalog, f"FROM {view} LIMIT 40")
        text = format_rows(columns, rows, "table")
        assert max(len(line) for line in text.splitlines()) <= 80
        joined = re.sub(r"\s", "", text)
        for name in columns:
            first, last = name.split("_")[0], name.split("_")[-1]
            assert first in joined
            assert last in joined


def test_csv_and_json_hold_every_value(catalog):
    columns, rows = run_query(catalog, "SELECT method, frozen, value, ci_low, seed FROM scores")
    objects = json.loads(format_rows(columns, rows, "json"))
    assert [tuple(entry.values()) for entry in objects] == rows
    read = list(csv.DictReader(io.StringIO(format_rows(columns, rows, "csv"))))
    assert [float(entry["value"]) for entry in read] == [row[2] for row in rows]
    columns, rows = run_query(catalog, "SELECT 1 AS a, 2 AS a")
    assert json.loads(format_rows(columns, rows, "json")) == [{"a": 1, "a_2": 2}]


def test_what_json_cannot_say_is_null():
    text = format_rows(["x", "y"], [(float("nan"), float("inf"))], "json")
    assert json.loads(text) == [{"x": None, "y": None}]


NAMES = st.lists(st.from_regex(r"[a-z]{1,9}(_[a-z]{1,9}){0,2}", fullmatch=True), min_size=1)
CELLS = st.none() | st.booleans() | st.integers() | st.floats() | st.text("ab -\n", max_size=200)


@given(
    NAMES.flatmap(
        lambda names: st.tuples(st.just(names), st.lists(st.tuples(*[CELLS] * len(names))))
    )
)
def test_any_rows_fit_the_width(table):
    names, rows = table
    if rows:
        text = format_rows(names, rows, "table", width=80)
        assert all(len(line) <= 80 for line in text.splitlines())


def test_views_begin_with_the_columns_of_the_contract(catalog):
    for view, names in CONTRACT.items():
        columns, _ = run_query(catalog, f"FROM {view} LIMIT 0")
        assert columns[: len(names.split())] == names.split()


def test_every_view_and_column_has_a_comment(catalog):
    of_users = f"IN ({', '.join(repr(view) for view in views(catalog))}) AND comment IS NULL"
    for source in ("view_name FROM duckdb_views()", "table_name FROM duckdb_columns()"):
        column = source.split(maxsplit=1)[0]
        sql = f"SELECT {source} WHERE schema_name = 'main' AND {column} {of_users}"
        assert ask(catalog, sql) == []


def test_lengths_and_data_sets_of_a_cell_are_those_of_its_record(catalog):
    columns = "prompt_tokens_mean, prompt_tokens_min, prompt_tokens_max, data"
    asked = f"SELECT eval_length, benchmark, {columns} FROM"
    for source in ("scores", "cells WHERE status = 'done'"):
        for length, benchmark, *found in run_query(catalog, f"{asked} {source}")[1]:
            assert found == [*3 * [length - 8], "essays" if benchmark == "needle" else ""]
    _, others = run_query(catalog, f"SELECT DISTINCT {columns} FROM cells WHERE status <> 'done'")
    assert others == [(None, None, None, None)]


def documented_queries() -> list[str]:
    text = DOCUMENT.read_text(encoding="utf-8")
    return re.findall(r"^```sql\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def compares_with_papers(sql: str) -> bool:
    """Whether it needs a base model of theirs, which tests/catalog/test_paper_comparison.py has."""
    return bool(re.search(r"paper_comparison|paper_agreement|lceg-llama2-7b", sql))


def test_every_documented_query_runs_and_finds_something(catalog):
    for sql in documented_queries():
        if not compares_with_papers(sql):
            found = [str(row) for row in ask(catalog, sql.replace("'toy'", f"'{STUDY}'"))]
            assert found, sql
            assert len(set(found)) == len(found), sql


def test_a_file_without_a_column_is_refused(tmp_path):
    rows = pa.Table.from_pylist([{"sample": 0, "score": 1.0}], SAMPLES)
    file = tmp_path / "samples.parquet"
    pq.write_table(rows.drop_columns(["score"]), file)
    with pytest.raises(DataError, match="with the columns of this file"):
        _read_parquet(file, SAMPLES)


def test_a_constant_value_that_ends_like_a_missing_one_is_shown():
    columns = ["setting", *(f"column_{number}" for number in range(30))]
    rows = [["a=-", *range(30)], ["a=-", *range(1, 31)]]
    assert format_rows(columns, rows, "table", width=80).startswith("setting=a=-\n")


def test_rows_have_the_columns_of_their_table_whatever_the_first_of_them_has():
    rows = [{"study": "a", "of_a_later_release": 1}, {"study": "b", "claim": "c"}]
    table = _table(rows, "store.expectation")
    assert table["claim"].to_pylist() == [None, "c"]
    assert "of_a_later_release" not in table.column_names
    assert table.column_names[0] == "study"
