"""Text that cannot be written as UTF-8 is refused in a study, and never hides another study.

Strategy: put such text into study files, into plans that lie in a store already, and into answers.
"""

import json
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml

from catalog.build import build_catalog
from catalog.queries import run_query
from flows.settings import STUDIES
from lce_core.benchmarks import CellResult, Sample
from lce_core.errors import SpecError
from lce_core.runners import _write_tables
from lce_core.store.artifacts import Store
from lce_core.store.cell_tables import SAMPLES_FILE
from lce_core.study.study_file import load_study, parse_study
from tasks.projections import rebuild_mlflow
from tests.support.catalogs.sample_store import STUDY
from tests.support.tracked_studies import plan_study

TOY = (STUDIES / "smoke.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("changes", "key", "finding"),
    [
        ({"hypothesis": "ab\udfff"}, "hypothesis", "U+DFFF as character 3 of the text"),
        ({"hypothesis": "a\0b"}, "hypothesis", "U+0000 as character 2 of the text"),
        (
            {"methods": ["none", {"name": "yarn", "label": "\ud900"}]},
            "methods[1].label",
            "U+D900 as character 1 of the text",
        ),
    ],
    ids=["half a pair", "nul", "nested"],
)
def test_a_study_with_text_that_nothing_can_store_is_refused_with_key_and_position(
    changes, key, finding
):
    study = {**yaml.safe_load(TOY), **changes}
    with pytest.raises(SpecError) as refused:
        parse_study(yaml.safe_dump(study), "my.yaml")
    assert (refused.value.where, refused.value.got) == (f"my.yaml: {key}", finding)
    with pytest.raises(SpecError, match="U\\+D900"):
        parse_study(yaml.safe_dump({**yaml.safe_load(TOY), "a\ud900": 1}), "my.yaml")


def test_text_of_any_language_is_taken():
    text = "naïve, 長い, emoji \N{GRINNING FACE}, \N{BYTE ORDER MARK}, and a second\nline"
    study = yaml.safe_dump({**yaml.safe_load(TOY), "hypothesis": text})
    assert parse_study(study, "my.yaml").hypothesis == text


def test_a_file_whose_name_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "my\udcff.yaml"
    path.write_text(TOY, encoding="utf-8")
    with pytest.raises(SpecError, match="not UTF-8") as refused:
        load_study(path)
    str(refused.value).encode()


@pytest.fixture
def store(sample, tmp_path) -> Store:
    shutil.copytree(sample / "studies", tmp_path / "studies")
    return Store(tmp_path)


def add_plan(store: Store, study: str, **changes: object) -> Path:
    plan = json.loads((store.home / "studies" / STUDY / "plan.json").read_text(encoding="utf-8"))
    path = store.home / "studies" / study / "plan.json"
    path.parent.mkdir()
    path.write_text(json.dumps({**plan, "study": study, **changes}), encoding="utf-8")
    return path


def studies(store: Store) -> list[tuple[str, str]]:
    sql = "SELECT DISTINCT study, hypothesis FROM studies ORDER BY ALL"
    return run_query(build_catalog(store), sql)[1]


def test_bad_text_in_a_plan_is_replaced_with_one_line(store, capsys):
    path = add_plan(store, "bad", hypothesis="\ud800 x")
    shown = studies(store)
    assert ("bad", "\ufffd x") in shown
    assert STUDY in [study for study, _ in shown]
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"lce: {path}: hypothesis: half of a surrogate pair")


def test_a_file_that_is_no_plan_hides_its_own_study_only(store, capsys):
    contents = ("[1]", "{", "\xff", '{"study": "bad"}', '{"cells": 1}', "[" * 100_000, "null", "")
    paths = [add_plan(store, f"bad-{number}") for number in range(len(contents))]
    for path, content in zip(paths, contents, strict=True):
        path.write_bytes(content.encode("latin-1"))
    assert [study for study, _ in studies(store)] == [STUDY]
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == len(contents)
    for path, line in zip(paths, lines, strict=True):
        assert line.startswith(f"lce: {path} is not a plan (")


def test_an_answer_with_half_of_a_surrogate_pair_is_kept_without_it(tmp_path):
    sample = Sample(0, 8, 1.0, prediction="a\udfffb", reference="a\0b")
    _write_tables(CellResult((), (sample,)), tmp_path)
    (row,) = pq.read_table(tmp_path / SAMPLES_FILE).to_pylist()
    assert (row["prediction"], row["reference"]) == ("a\ufffdb", "a\0b")


@pytest.mark.slow
def test_what_mlflow_refuses_of_one_study_hides_no_other(tmp_path, capsys):
    store = Store(tmp_path)
    store.prepare()
    for study in ("bad", "broken", "huge", "large", "long", "small"):
        plan_study(store, study=study)
    for study, change in (
        ("bad", {"hypothesis": "\ud800 x"}),
        ("broken", {"target_context": "none", "trainings": 5}),
        ("huge", {"target_context": 1 << 63}),
        ("large", {"target_context": (1 << 63) - 1}),
        ("long", {"hypothesis": "x" * 100_000}),
    ):
        path = store.home / "studies" / study / "plan.json"
        path.write_text(
            json.dumps({**json.loads(path.read_text(encoding="utf-8")), **change}), encoding="utf-8"
        )
    assert rebuild_mlflow(store.home) == ["bad", "large", "long", "small"]
    lines = [line.split("/")[-2] for line in capsys.readouterr().err.splitlines() if "plan" in line]
    assert lines == ["bad", "broken", "huge"]
