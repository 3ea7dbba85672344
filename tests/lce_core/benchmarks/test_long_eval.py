"""LongEval lines: published answers and their accuracies as oracle, prompts taken apart by hand."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks import Benchmark, CellRequest
from lce_core.benchmarks._prompted.retrieval import Prompt
from lce_core.benchmarks.long_eval import prompt_text
from lce_core.errors import DataError, UnavailableError
from lce_core.evaluation.metrics import first_integer, has_complete_integer, last_integer
from tests.support.cells import benchmark, request
from tests.support.data.subsets import state_rows

LINE = re.compile(r"line (\S.*?): REGISTER_CONTENT is <(\d+)>")


def _benchmark(**parameters: Any) -> Benchmark:
    return benchmark("long_eval", **parameters)


def _request(length: int, **changes: Any) -> CellRequest:
    return request(_benchmark(), length, **changes)


@pytest.mark.parametrize(("num_lines", "right"), [(200, 49), (300, 45)])
def test_published_answers_get_their_published_accuracy(test_data, num_lines, right):
    text = (test_data / "longeval" / f"{num_lines}_response.txt").read_text("utf-8")
    rows = re.findall(r"Label: (\d+), Predict: (.*), Parsed: ", text)
    assert len(rows) == 50
    assert f"Accuracy: {right / 50:g}" in text
    prompts = [Prompt(np.arange(3), label) for label, _ in rows]
    answers = [answer for _, answer in rows]
    faithful = _benchmark(profile="faithful").scored("lines", prompts, answers)
    assert sum(sample.score for sample in faithful) == right


def test_gold_numbers_score_one_and_other_answers_nothing():
    answers = [" <4711>.", "4711", "", " none", " <471>", " <4711>\nline x: <12>", " 12 or 4711"]
    answers.append("4" * 5000)  # more digits than Python converts
    prompts = [Prompt(np.arange(3), "4711")] * len(answers)
    for profile, expected in (
        ("clean", [1, 1, 0, 0, 0, 1, 0, 0]),
        ("faithful", [1, 1, 0, 0, 0, 0, 1, 0]),
    ):
        scored = _benchmark(profile=profile).scored("lines", prompts, answers)
        assert [sample.score for sample in scored] == expected


@given(st.text(alphabet="12 <>", max_size=8), st.text(alphabet="12 <>", max_size=8))
def test_integers_are_the_first_and_last_run_of_digits(begun, more):
    runs = [int(run) for run in "".join(c if c.isdigit() else " " for c in begun).split()]
    assert first_integer(begun) == (runs[0] if runs else None)
    assert last_integer(begun) == (runs[-1] if runs else None)
    if has_complete_integer(begun):
        assert first_integer(begun + more) == first_integer(begun)


def test_the_prompt_is_the_published_one_with_a_begun_answer(test_data):
    with (test_data / "longeval" / "200_lines.jsonl").open(encoding="utf-8") as lines:
        row = json.loads(next(lines))
    found = [(key, int(number)) for key, number in LINE.findall(row["prompt"])]
    asked = row["random_idx"][0]
    assert len(found) == 200
    assert prompt_text(found, asked) == f"{row['prompt']}Line <{asked}>: <REGISTER_CONTENT> is"


@pytest.fixture
def cases(tmp_path) -> Path:
    for num_lines in (4, 12, 40):
        rows = []
        for case in range(3):
            lines = [(f"wide-boat{case}{i}", 100 * case + i + 1) for i in range(num_lines)]
            asked, number = lines[case]
            text = prompt_text(lines, asked).removesuffix(f"Line <{asked}>: <REGISTER_CONTENT> is")
            row = {"prompt": text, "random_idx": [asked, case], "num_lines": num_lines}
            rows.append(json.dumps({**row, "expected_number": number}))
        (tmp_path / f"{num_lines}_lines.jsonl").write_text("\n".join(rows), encoding="utf-8")
        state_rows(tmp_path, {f"{num_lines}_lines.jsonl": len(rows)})
    return tmp_path


def test_faithful_asks_the_largest_published_cases_that_fit(cases):
    benchmark = _benchmark(profile="faithful")
    for length, num_lines in ((1000, 4), (1400, 12), (8192, 40)):
        request = _request(length, data_folders={"long_eval": cases})
        prompts = benchmark.prompts(request)
        assert [prompt.reference for prompt in prompts] == ["1", "102", "203"]
        assert prompts[2].depth == pytest.approx(100 * 2 / (num_lines - 1))
        for prompt in prompts:
            text = request.tokenizer.decode(prompt.ids)
            assert len(LINE.findall(text)) == num_lines
            assert text.endswith("<REGISTER_CONTENT> is")
    folders = {"long_eval": cases}
    assert benchmark.digest("lines", folders) == _benchmark(cases="published").digest(
        "lines", folders
    )
    assert benchmark.digest("lines", folders) != benchmark.digest("lines", {})
    with pytest.raises(
        UnavailableError, match=r"got 600 tokens, but .* of 4_lines\.jsonl .* at least \d+ tokens"
    ):
        benchmark.evaluate(_request(600, data_folders=folders))


def test_a_file_that_is_not_named_by_its_lines_is_refused(cases):
    (cases / "many_lines.jsonl").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"many_lines\.jsonl: .*200_lines\.jsonl"):
        _benchmark(profile="faithful").prompts(_request(999, data_folders={"long_eval": cases}))


def test_depth_asks_the_line_in_which_it_falls():
    depths = [float(depth) for depth in range(5, 100, 10)]
    draws = [np.random.default_rng(seed) for seed in range(len(depths))]
    asked = _request(1500)
    for depth, prompt in zip(depths, _benchmark().generated(asked, depths, draws), strict=True):
        text = asked.tokenizer.decode(prompt.ids)
        lines = LINE.findall(text)
        assert len(lines) > 8
        place = int(depth * len(lines) // 100)
        assert lines[place][1] == prompt.reference
        assert f"in line {lines[place][0]}?" in text
