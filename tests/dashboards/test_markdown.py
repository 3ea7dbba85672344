"""Tables, CSV and pictures of the Markdown report show the content of the catalog."""

import csv
import hashlib
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from catalog.queries import open_catalog
from dashboards.claims import expectations
from dashboards.markdown import plain, write_markdown
from dashboards.sections.comparisons import SHORT_CONTEXT
from lce_core import formats
from tests.catalog.test_catalog import ask
from tests.support.catalogs.answered_catalog import BASE_MODEL, Answered, written
from tests.support.catalogs.sample_store import STUDY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(catalog, tmp_path_factory) -> Path:
    return write_markdown(catalog, STUDY, tmp_path_factory.mktemp("md") / "report").parent


@pytest.fixture(scope="module")
def page(folder) -> str:
    return (folder / "README.md").read_text(encoding="utf-8")


def tables(page: str) -> dict[str, dict[str, dict[str, str]]]:
    """Return the text of each table cell by title, method and length."""
    found = {}
    for block in page.split("\n### ")[1:]:
        title, _, rest = block.partition(":")
        lines = [line for line in rest.splitlines() if line.startswith("| ")]
        if not lines:
            continue
        head, *body = ([part.strip() for part in line.strip("| ").split(" | ")] for line in lines)
        if head[0] == "method":
            found[title] = {
                line[0]: dict(zip(head[1:], line[1:], strict=False))
                for line in body
                if len(line) > 1
            }
    return found


def label(row: dict[str, Any]) -> str:
    return row["method"] + " tuned" * (not row["frozen"])


def test_each_value_and_interval_is_in_the_table_of_its_task(catalog, page):
    shown = tables(page)
    seen = 0
    for row in ask(catalog, f"FROM score_by_length WHERE study = '{STUDY}'"):
        text = shown[f"{row['benchmark']}, {row['task']}"][label(row)][f"{row['eval_length']:,}"]
        if row["value"] is None:
            assert text == f"{row['num_seeds']} of {row['num_planned']} seeds"
            continue
        value, *interval = re.findall(r"[-+.e\d]+", text)
        assert value == formats.score(row["value"])
        assert ("**" in text) == (row["rank"] == 1)
        if row["num_planned"] > 1:
            assert interval == [formats.score(row["lowest"]), formats.score(row["highest"])]
        seen += 1
    assert seen > 10


def test_verdicts_within_the_trained_context_are_those_of_the_catalog(catalog, page):
    table = page.split(f"### {SHORT_CONTEXT}\n")[1].split("\n\n")[1]
    lines = [line.split("|")[1:-1] for line in table.splitlines()]
    heads, *found = ([field.strip() for field in line] for line in lines)
    assert heads == ["method", "passkey, 128 tokens"]  # made-up losses have no documents
    words = {
        "confirmed": "not worse",
        "contradicted": "worse",
        "on one training run": "decided on one training run only",
        "undecided": "undecided",
        "too few": "too few samples",
    }
    outcomes = ask(catalog, "FROM expectations WHERE entry IS NULL")
    assert len(outcomes) == 12
    shown = {line[0]: dict(zip(heads, line, strict=True)) for line in found[1:]}
    for row in outcomes:
        cells = shown.get(label(row), {})
        text = cells.get(f"{row['benchmark']}, 128 tokens", "")
        if row["outcome"] == "not measured":
            assert not text
            continue
        assert text.split(" ")[0].rstrip(",") == f"{row['difference']:+.3f}"
        assert f", {words[row['outcome']]}" in text


def test_unfinished_cells_and_an_unknown_trained_context_are_no_error(tmp_path):
    """No score is bold beside scores on other prompts; done cells determine the direction."""
    asked = {"none": ([], "tiny"), "pi": ([1.0, 0.0], "clean"), "yarn": ([1.0, 1.0], "tiny")}
    cells = [
        Answered(method, True, 0, "passkey", "single", 512, scores, sum(scores) / 2,
                 extra={"profile": profile})
        for method, (scores, profile) in asked.items()
    ]  # fmt: skip
    path = written(tmp_path / "catalog.duckdb", cells, trained=None)
    page = write_markdown(path, "s", tmp_path / "report").read_text(encoding="utf-8")
    assert f"\n## {BASE_MODEL}\n" in page
    assert "### passkey, single: accuracy, higher is better\n" in page
    assert "**" not in page


def test_every_score_is_in_the_csv_whose_digest_the_page_states(catalog, folder, page):
    with (folder / "scores.csv").open(encoding="utf-8", newline="") as file:
        kept = [(row["cell"], row["metric"], float(row["value"])) for row in csv.DictReader(file)]
    sql = f"SELECT cell, metric, value FROM scores WHERE study = '{STUDY}'"
    assert sorted(kept) == sorted(tuple(row.values()) for row in ask(catalog, sql))
    digest = hashlib.sha256((folder / "scores.csv").read_bytes()).hexdigest()
    assert digest in page


def test_every_comparison_of_an_expectation_is_listed_with_its_outcome(catalog, page):
    with open_catalog(catalog) as connection:
        expected = expectations(connection, STUDY)
    shown = page.split("### Expectations")[1].split("### ")[0]
    assert re.findall("^ *- .*", shown, re.M) == [
        line
        for entry in expected
        for line in (
            f"- {plain(entry.line)}",
            *(f"    - **{one.outcome}**: {one.finding}" for one in entry.comparisons),
        )
    ]


def test_the_page_links_pictures_of_every_method_and_number(catalog, folder, page):
    named = set(re.findall(r"]\(([^)]+\.svg)\)", page))
    assert named == {path.name for path in folder.glob("*.svg")}
    (model,) = {row["base_model"] for row in ask(catalog, "FROM studies")}
    texts = [
        element.text
        for element in ET.parse(folder / f"{model}.svg").iter()
        if element.tag.endswith("text")
    ]
    for row in ask(catalog, f"FROM benchmark_by_length WHERE study = '{STUDY}'"):
        assert label(row) in texts
        absent = {"-", "failed", "n/a"}
        shown = absent if row["value"] is None else {formats.short_score(row["value"])}
        assert shown & set(texts)


def test_the_same_catalog_gives_the_same_bytes(catalog, folder, tmp_path):
    again = write_markdown(catalog, STUDY, tmp_path / "again").parent
    for file in sorted(folder.iterdir()):
        assert (again / file.name).read_bytes() == file.read_bytes()


def test_a_study_with_one_seed_has_intervals_over_samples(small_sample, tmp_path):
    catalog = small_sample / "catalog.duckdb"
    page = write_markdown(catalog, STUDY, tmp_path / "one").read_text(encoding="utf-8")
    shown = tables(page)
    known = ask(catalog, f"FROM mean_over_seeds WHERE study = '{STUDY}'")
    assert any(row["ci_low"] is not None for row in known)
    for row in known:
        text = shown[f"{row['benchmark']}, {row['task']}"][label(row)][f"{row['eval_length']:,}"]
        interval = re.findall(r"[-+.e\d]+", text)[1:]
        bounds = [bound for bound in (row["ci_low"], row["ci_high"]) if bound is not None]
        assert interval == [formats.score(bound) for bound in bounds]
