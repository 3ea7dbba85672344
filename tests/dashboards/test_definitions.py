"""The report defines methods, benchmarks and profiles, and shows answers of each benchmark."""

import json
import re
from html import unescape
from pathlib import Path

import duckdb
import pytest

from catalog.queries import run_query
from dashboards.contents import Contents, read_contents
from dashboards.sections import about, tasks, training
from tests.support.catalogs.answered_catalog import BASE_MODEL, Answered, written

PLUGINS = (
    ("method", "yarn", None, "YaRN: <b>sharper</b>.", None, "arXiv:2309.00071", "section 3"),
    ("method", "none", None, "No extension.", None, "own", "no paper"),
    ("method", "rerope", None, "True distances.", None, "https://kexue.fm/archives/9708", "page"),
    ("benchmark", "passkey", "tiny", "Repeat a number.", "120 prompts", "doi:10/x", "appendix"),
)
LABELS = {"none": "none", "yarn_paper": "yarn", "rerope": "rerope"}
"""Registered name of each method, by its label."""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory) -> Path:
    cells = [
        Answered(label, True, seed, "passkey", "single", length, [1.0, 0.0] * 4, 0.5,
                 extra={"method_name": name})
        for label, name in LABELS.items()
        for seed in (0, 1)
        for length in (256, 512, 1024)
    ]  # fmt: skip
    path = written(tmp_path_factory.mktemp("defined") / "catalog.duckdb", cells)
    with duckdb.connect(path) as connection:
        connection.executemany(
            "INSERT INTO store.plugin VALUES ('s', ?, ?, ?, ?, ?, ?, ?)", PLUGINS
        )
        connection.execute(
            "UPDATE store.artifact SET spec = json_object('method', json_object('name', 'yarn',"
            " 'version', 1, 'window', 64), 'benchmark', json_object('name', 'passkey', 'profile',"
            " 'tiny', 'num_samples', 8)) WHERE artifact IN"
            " (SELECT cell FROM store.cell WHERE method = 'yarn_paper')"
        )
        connection.execute(
            "UPDATE store.sample SET reference = '<7>', prompt_end = if(score = 1, 'Key: <', NULL),"
            " prediction = CASE WHEN score = 1 THEN '<7>' ELSE '<script>' || repeat('x', 400) END"
        )
    return path


def contents_of(catalog: Path) -> Contents:
    return read_contents(catalog, "s").of(BASE_MODEL)


def cells_of(section: str) -> list[list[str]]:
    return [
        re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)
        for body in re.findall(r"<tbody>(.*?)</tbody>", section)
        for row in body.split("</tr>")[:-1]
    ]


def test_each_method_and_benchmark_has_a_line_and_a_link(catalog):
    found = cells_of(about.definitions(contents_of(catalog)))
    assert found == [
        ["<code>none</code>", "No extension.", "", "no paper"],
        ["<code>rerope</code>", "True distances.", "",
         '<a href="https://kexue.fm/archives/9708">https://kexue.fm/archives/9708</a>, page'],
        ["<code>yarn_paper</code>", "YaRN: &lt;b&gt;sharper&lt;/b&gt;.", "window 64",
         '<a href="https://arxiv.org/abs/2309.00071">arXiv:2309.00071</a>, section 3'],
        ["passkey", "Repeat a number.", "tiny: 120 prompts", "num_samples 8",
         '<a href="https://doi.org/10/x">doi:10/x</a>, appendix'],
    ]  # fmt: skip


def test_five_answers_are_wrong_and_right_in_turn(catalog):
    section = tasks.sample_answers(contents_of(catalog))
    assert re.findall("<h3[^>]*>(.*?)</h3>", section) == ["passkey, 512 tokens"]
    rows = cells_of(section)
    assert [row[2] for row in rows] == ["0", "1", "0", "1", "0"]
    assert {row[4] for row in rows} == {"<code>&lt;7&gt;</code>"}
    # Each method has one wrong and at most one right answer.
    assert len({row[0] for row in rows if row[2] == "0"}) == 3
    assert "<script>" not in section
    assert max(len(unescape(row[3])) for row in rows) < 330
    for name, _, score, _, _, command in rows:
        assert command.startswith("<code>...Key: &lt;</code><br>") == (score == "1")
        prompt = re.search(r"lce prompt (\S+) (\d+)<", command)
        assert prompt
        _, found = run_query(
            catalog,
            "SELECT method, cells.eval_length, samples.score FROM samples JOIN cells USING (cell)"
            f" WHERE cell = '{prompt[1]}' AND sample = {prompt[2]}",
        )
        assert found == [(re.sub("<[^>]+>", "", name), 512, float(score))]


def test_a_score_table_states_the_number_of_prompts(catalog):
    section = tasks.by_task(contents_of(catalog))
    assert re.findall(r"<small>(.*?)</small>", section) == ["n = 8"] * 3


def test_settings_name_the_methods_that_a_training_run_belongs_to(catalog):
    contents = contents_of(catalog)
    assert training.training(contents) == ""
    methods = [{"method": name, "frozen": True} for name in ("none", "yarn_paper")]
    settings = {"learning_rate": 0.0005, "tokens_per_step": 4096, "schedule": "cosine"}
    run = {
        "base_model": BASE_MODEL, "is_finetuning": True, "corpus": "books", "num_steps": 1000,
        "row_length": 512, "settings": json.dumps(settings), "methods": methods,
    }  # fmt: skip
    base = {**run, "is_finetuning": False, "settings": None}
    trained = Contents(contents.study, {**contents.rows, "training_settings": [base, run]})
    assert cells_of(training.training(trained)) == [
        ["the base model", "books", "1,000", "", "512", "", ""],
        ["<code>none</code>, <code>yarn_paper</code>", "books", "1,000", "4,096", "512", "0.0005",
         "schedule cosine"],
    ]  # fmt: skip
