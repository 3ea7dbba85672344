from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from lce_core.benchmarks import Benchmark, CellRequest, cut_middle, cut_middle_to_fit
from lce_core.benchmarks.longbench import data_set
from lce_core.benchmarks.longbench.tasks import TASKS
from tests.support.byte_level import byte_level
from tests.support.cells import TOY, benchmark, request
from tests.support.data.fixture_data import fixture_folders


@pytest.fixture
def folder(tmp_path) -> Path:
    return fixture_folders([data_set("trec")], tmp_path)["longbench"]


@pytest.fixture(scope="module")
def bpe() -> PreTrainedTokenizerFast:
    return byte_level(["Harbour 7 has boats. " * 9, TASKS["qasper"].prompt], 380, across_words=True)


def _benchmark(**parameters: Any) -> Benchmark:
    return benchmark("longbench", **parameters)


def _request(task: str, length: int, folder: Path, **changes: Any) -> CellRequest:
    folders = {"longbench": folder}
    return request(_benchmark(), length, task=task, data_folders=folders, **changes)


def test_prompts_are_the_published_templates_with_input_and_context_in_place():
    assert len(TASKS) == 16
    for task in TASKS.values():
        text = task.question("CONTEXT {input}", "INPUT")
        assert text.count("CONTEXT {input}") == 1
        asks_nothing = ("gov_report", "multi_news", "passage_count", "lcc")
        assert text.count("INPUT") == (0 if task.name in asks_nothing else 1)
    assert TASKS["narrativeqa"].prompt.count(" asconcisely ") == 2
    assert TASKS["trec"].question("C", "I").endswith("examples of questions.\n\nC\nI")
    assert TASKS["passage_count"].prompt.endswith("The final answer is: ")
    assert TASKS["repobench-p"].question("C", "I").endswith("below. \nCINext line of code:\n")
    assert "\n\n Answer the question based on the above article" in TASKS["qasper"].prompt


@example(most=9, text="abcdefghi")
@example(most=8, text="abcdefghi")
@given(st.integers(2, 120), st.text(alphabet="Harbou ré\n.", min_size=1, max_size=200))
def test_a_cut_prompt_keeps_both_ends_and_a_short_one_all(bpe, tmp_path_factory, most, text):
    for tokenizer in (bpe, TOY.tokenizer(None)):
        request = _request("trec", most, Path(), tokenizer=tokenizer)
        whole = tokenizer.encode(text)
        once, fitted = cut_middle(request, text, most), cut_middle_to_fit(request, text, most)
        if len(whole) <= most:
            assert once == fitted == whole
            continue
        half = most // 2
        ends = [
            tokenizer.decode(part, skip_special_tokens=True)
            for part in (whole[:half], whole[-half:])
        ]
        assert once == tokenizer.encode("".join(ends))
        assert len(fitted) <= most
        start = next(
            (i for i, (a, b) in enumerate(zip(fitted, whole, strict=False)) if a != b), most
        )
        # Cut within a character of several bytes, a text begins with the sign for a broken one.
        assert start >= min(1, half) or not text[0].isascii()


@pytest.mark.parametrize(("profile", "room"), [("faithful", 900), ("clean", 900 - 64)])
def test_only_clean_keeps_room_for_the_answer(profile, room, folder):
    request = _request("multifieldqa_en", 900, folder)
    for number, prompt in enumerate(_benchmark(profile=profile).prompts(request)):
        assert len(prompt.ids) == room
        text = request.tokenizer.decode(prompt.ids)
        assert text.startswith("Read the following text and answer briefly.\n\nHarbour")
        assert text.endswith(f"Question: Which boat number {number} is it?\nAnswer:")


def test_rows_about_one_document_form_a_cluster(folder):
    request = _request("trec", 120, folder)
    result = _benchmark(profile="faithful").evaluate(request)
    clusters = [sample.cluster for sample in result.samples]
    assert clusters[0] == clusters[1] != clusters[2]
    assert len(set(clusters)) == 2
    assert result.scores[0].num_samples == 4
    spread = _benchmark(num_samples=2).rows(request)
    assert [row.given for row in spread] == [f"Which boat number {n} is it?" for n in (0, 2)]
