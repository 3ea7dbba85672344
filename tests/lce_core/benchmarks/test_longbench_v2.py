"""LongBench v2: prompts of made-up rows, the authors' extraction rule, malformed rows."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import decoders

from lce_core.benchmarks import CellData
from lce_core.benchmarks._prompted.retrieval import answer_text, token_ids
from lce_core.contracts.benchmark_cases import words_tokenizer
from lce_core.errors import UnavailableError
from tests.support.cells import TOY, benchmark, request
from tests.support.data.fixture_data import fixture_folders
from tests.support.data.subsets import state_rows

TEXT = """Please read the following text and answer the question below.

<text>
Harbour 0 has boats."""
END = """</text>

What is the correct answer to this question: Which boat has the number 1?
Choices:
(A) the boat a
(B) the boat b
(C) the boat c
(D) the boat d

Format your response as follows: "The correct answer is (insert answer here)".

The correct answer is"""


def built(root: Path, length: int, **changes):
    asked = benchmark("longbench_v2")
    folders = fixture_folders(asked.reads("short"), root)
    cell = request(asked, length, tokenizer=words_tokenizer(), data_folders=folders, **changes)
    return asked.build(cell)


def test_a_prompt_is_the_authors_with_a_begun_answer(tmp_path):
    prompts = built(tmp_path, 2000, task="medium")
    assert [prompt.reference for prompt in prompts] == ["(A)", "(B)", "(C)", "(D)"]
    text = words_tokenizer().decode(prompts[1].ids, skip_special_tokens=True)
    assert text.startswith(TEXT)
    assert text.endswith(END)
    assert prompts[0].cluster == prompts[1].cluster != prompts[2].cluster
    assert {prompt.labels for prompt in prompts} == {("(A)", "(B)", "(C)", "(D)")}


def test_a_long_prompt_loses_its_middle_and_keeps_question_and_answer(tmp_path):
    whole, cut = (built(tmp_path, length)[1].ids for length in (2000, 400))
    assert len(whole) > 400
    assert 385 <= len(cut) + 32 <= 400
    np.testing.assert_array_equal(cut[:150], whole[:150])
    np.testing.assert_array_equal(cut[-150:], whole[-150:])


def test_a_decoder_that_strips_the_first_blank_changes_no_score(tmp_path):
    asked, tokenizer = benchmark("longbench_v2"), copy.deepcopy(words_tokenizer())
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(
        [decoders.ByteLevel(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    cell = request(asked, 2000, tokenizer=tokenizer)
    prompt = built(tmp_path, 2000)[1]
    for text, score, complete in ((" (B).", 1.0, True), (" B", 1.0, False), (" (A)", 0.0, True)):
        answer = answer_text(cell, token_ids(cell, text))
        assert answer == text[1:]
        assert asked.score_answer("short", prompt, answer) == score
        assert asked.complete("short", prompt, answer) == complete


def test_a_subset_without_questions_of_a_length_makes_its_cell_unavailable(tmp_path):
    built(tmp_path, 2000)
    folder = tmp_path / "longbench_v2"
    rows = json.loads((folder / "data.json").read_bytes())
    few = [row for row in rows if row["length"] == "short"]
    (folder / "data.json").write_text(json.dumps(few), encoding="utf-8")
    state_rows(folder, {"data.json": len(few)})
    for data, number in (({}, 215), ({"longbench_v2": folder}, 4)):
        cell = CellData(TOY, "medium", 2000, data)
        assert benchmark("longbench_v2").data_samples(cell) == number
    with pytest.raises(UnavailableError, match="no question of length 'medium'"):
        built(tmp_path, 2000, task="medium")
