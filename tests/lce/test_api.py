"""The Python interface, on a made-up store, and one real run through it."""

import csv
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import lce
from catalog.queries import open_catalog, run_query
from dashboards.claims import claims
from lce.cli import app
from lce_core.errors import ProcessFailedError, SpecError
from tests.support.catalogs.answered_catalog import Answered, written
from tests.support.catalogs.sample_store import STUDY
from tests.support.repository import ROOT


@pytest.fixture(scope="module")
def home(sample, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("home")
    shutil.copy(sample / "catalog.duckdb", folder)
    return folder


def called(home: Path, *arguments: object) -> Result:
    """Run `lce` in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)], env={"LCE_HOME": str(home)})


@pytest.fixture
def results(home) -> Iterator[lce.Results]:
    with lce.open(home) as opened:
        yield opened


def rows(home: Path, query: str) -> list[tuple[Any, ...]]:
    return run_query(home / "catalog.duckdb", query)[1]


def test_tables_are_those_of_the_catalog(home, results):
    scores = results.scores(STUDY).df()
    expected = rows(home, "SELECT cell, metric, value FROM scores ORDER BY ALL")
    assert sorted(zip(scores.cell, scores.metric, scores.value, strict=True)) == expected
    for of_study in (results.scores, results.samples, results.paper, results.claims):
        with pytest.raises(SpecError, match=STUDY):  # it suggests the study that is there
            of_study(f"{STUDY}s")
    assert results.samples(STUDY).arrow().read_all().num_rows == len(rows(home, "FROM samples"))
    assert results.paper().columns == [name for name, *_ in rows(home, "DESCRIBE paper_comparison")]


def test_claims_have_the_sentences_that_the_command_prints(home, results):
    with open_catalog(home / "catalog.duckdb") as connection:
        texts = [claim.text for claim in claims(connection, STUDY)]
    assert results.claims(STUDY).df().text.tolist() == texts != []


def test_differences_are_the_rows_that_the_command_prints(tmp_path):
    cells = [
        Answered(method, True, 0, "perplexity", "docs", 256, [1.0], 2.0)
        for method in ("none", "yarn", "pi")
    ]
    for name, of_home in (("a", cells[:2]), ("b", [replace(cells[0], value=3.0), *cells[1:]])):
        (tmp_path / name).mkdir()
        written(tmp_path / name / "catalog.duckdb", of_home)
    printed = json.loads(called(tmp_path, "diff", tmp_path / "a", tmp_path / "b", "--json").output)
    with lce.open(tmp_path / "a") as a, lce.open(tmp_path / "b") as b:
        for other in (tmp_path / "b", b):
            assert a.diff(other).to_arrow_table().to_pylist() == printed
        same = a.diff(tmp_path / "a", "s")
        assert (len(same), same.columns) == (0, a.diff(b).columns)
        with pytest.raises(SpecError, match="'t', of which neither home has a score"):
            a.diff(b, "t")


def test_sql_joins_data_frames_of_any_caller_and_takes_parameters(results):
    mine = pd.DataFrame({"method": ["yarn", "unknown"], "note": ["mine", "not joined"]})

    def joined() -> list[tuple[Any, ...]]:
        return results.sql(
            "SELECT DISTINCT method, note FROM scores JOIN mine USING (method)"
            " WHERE eval_length = $length",
            length=512,
        ).fetchall()

    assert len(mine) == 2
    assert joined() == [("yarn", "mine")]


def test_every_view_is_written_as_parquet(home, tmp_path):
    told = called(home, "catalog", "--parquet", tmp_path / "tables")
    assert told.exit_code == 0
    views = rows(
        home, "SELECT view_name FROM duckdb_views() WHERE schema_name = 'main' AND NOT internal"
    )
    written = {Path(line).stem for line in told.output.split()}
    assert written == {name for (name,) in views}
    scores = pq.read_table(tmp_path / "tables" / "scores.parquet")
    assert scores.num_rows == len(rows(home, "FROM scores"))


def test_a_query_is_written_to_a_file_with_its_types(home, tmp_path):
    query = "SELECT 1 AS n, 0.1 AS x, 'a' AS t, NULL AS nothing, [1, 2] AS parts"
    files = {form: tmp_path / f"found.{form}" for form in ("parquet", "csv", "json")}
    for form, file in files.items():
        told = called(home, "sql", query, "--format", form, "--out", file)
        assert (told.exit_code, told.output) == (0, "")
    (found,) = pq.read_table(files["parquet"]).to_pylist()
    assert found | {"x": float(found["x"])} == {
        "n": 1, "x": 0.1, "t": "a", "nothing": None, "parts": [1, 2]
    }  # fmt: skip
    assert next(csv.DictReader(io.StringIO(files["csv"].read_text())))["parts"] == "[1, 2]"
    assert json.loads(files["json"].read_text())[0]["parts"] == [1, 2]
    told = called(home, "sql", query, "--format", "parquet")
    assert isinstance(told.exception, SpecError)
    assert "--out" in str(told.exception)


def test_a_failed_run_raises_with_its_last_line(tmp_path, capsys):
    with pytest.raises(ProcessFailedError, match="exit code 2"):
        lce.run("no-such-study", home=tmp_path)
    assert "no-such-study" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_returns_its_results(finished, text, tmp_path):
    from tests.support.studies import copied_home, write_study

    name, _, folder = text[1].partition("=")
    home = copied_home(finished, tmp_path / "home")
    results = lce.run(write_study(tmp_path), home=home, data_folders={name: Path(folder)})
    assert len(results.scores().df()) > 0


def executed(codes: Iterable[str], home: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run pieces of code on the sample study; return their names."""
    monkeypatch.setenv("LCE_HOME", str(home))
    names: dict[str, Any] = {}
    for code in codes:
        for quote in "'\"":
            code = code.replace(f"{quote}toy{quote}", f"'{STUDY}'")
        exec(code, names)
    assert len(names["claims"]) > 0
    return names


def test_the_code_of_the_page_runs(home, monkeypatch):
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8").replace('"lce-home"', "")
    codes = re.findall(r"^```py\n(.*?)^```", page, flags=re.MULTILINE | re.DOTALL)
    executed(codes, home, monkeypatch)


def test_the_notebook_runs(home, monkeypatch):
    notebook = json.loads((ROOT / "docs/examples/results.ipynb").read_text(encoding="utf-8"))
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in cells)  # outputs would grow stale
    names = executed(("".join(cell["source"]) for cell in cells), home, monkeypatch)
    assert names["planned"]["cells"]


@pytest.mark.parametrize("name", ["tasks", "catalog"])
def test_a_script_beside_a_file_with_the_name_of_a_package_is_told_which(name, tmp_path):
    (tmp_path / f"{name}.py").touch()
    script = tmp_path / "script.py"
    script.write_text("import lce")
    command = [sys.executable, str(script)]
    code = os.environ | {"PYTHONPATH": str(ROOT)}
    ended = subprocess.run(command, env=code, capture_output=True, text=True)
    assert ended.returncode == 1
    assert f"{tmp_path / name}.py hides the package '{name}' of lce" in ended.stderr
