"""LongBench v2: prompts of made-up rows, the authors' extraction rule, malformed rows."""

import json
from pathlib import Path

import pytest

from lce_core.benchmarks.longbench_v2 import extracted
from lce_core.contracts.benchmark_cases import words_tokenizer
from lce_core.errors import DataError
from tests.support.cells import benchmark, request
from tests.support.data.fixture_data import fixture_folders


def built(root: Path, length: int, **changes):
    asked = benchmark("longbench_v2")
    folders = fixture_folders(asked.reads("short"), root)
    cell = request(asked, length, tokenizer=words_tokenizer(), data_folders=folders, **changes)
    return asked.build(cell)


def test_a_prompt_is_the_authors_with_a_begun_answer(tmp_path):
    prompts = built(tmp_path, 2000, task="medium")
    assert [prompt.reference for prompt in prompts] == ["(A)", "(B)", "(C)", "(D)"]
    text = words_tokenizer().decode(prompts[1].ids, skip_special_tokens=True)
    assert text.endswith("The correct answer is")
    assert prompts[0].document == prompts[1].document != prompts[2].document
    assert {prompt.labels for prompt in prompts} == {("(A)", "(B)", "(C)", "(D)")}


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("The correct answer is (C)", "C"),
        ("So: The correct answer is **(D)**, not (A).", "D"),
        ("The correct answer is A. No: The correct answer is (B).", "B"),
        ("The correct answer is (E)", None),
        ("the correct answer is (A)", None),
    ],
)
def test_the_authors_rule_extracts_the_letter(response, letter):
    assert extracted(response) == letter


@pytest.mark.parametrize("change", [{"answer": "E"}, {"length": "huge"}, {"question": 7}], ids=str)
def test_a_malformed_row_is_refused(tmp_path, change):
    (folder,) = fixture_folders(benchmark("longbench_v2").reads("short"), tmp_path).values()
    rows = json.loads((folder / "data.json").read_text())
    (folder / "data.json").write_text(json.dumps([rows[0] | change, *rows[1:]]))
    with pytest.raises(DataError, match=str(*change)):
        built(tmp_path, 2000)
