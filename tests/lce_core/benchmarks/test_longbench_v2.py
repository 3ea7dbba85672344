"""LongBench v2: prompts of made-up rows, the authors' extraction rule, malformed rows."""

from pathlib import Path

import numpy as np

from lce_core.contracts.benchmark_cases import words_tokenizer
from tests.support.cells import benchmark, request
from tests.support.data.fixture_data import fixture_folders

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
