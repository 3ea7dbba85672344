"""A cell whose prompts do not fill its length is refused before a model is asked."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lce_core.benchmarks import (
    CellRequest,
    Profile,
    ProfileName,
    Prompt,
    PromptBenchmark,
)
from lce_core.contracts.benchmark_cases import streams
from lce_core.errors import UnavailableError
from tests.support.cells import benchmark, request

ANSWER = 10


class Sized(PromptBenchmark):
    plugin_name: ClassVar[str] = "sized"
    plugin_version: ClassVar[int] = 1
    profiles: ClassVar[Mapping[ProfileName, Profile]] = {"clean": Profile("", num_samples=2)}
    answer_tokens: ClassVar[int] = ANSWER
    lengths: tuple[int, ...]

    def build(self, request: CellRequest) -> list[Prompt]:
        return [Prompt(np.full(size, 65), "A") for size in self.lengths]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return 0.0


class Loose(Sized):
    answer: int
    slack: int

    def new_tokens(self, task: str) -> int:
        return self.answer

    def slack_tokens(self, request: CellRequest) -> int:
        return self.slack


@cache
def any_cell() -> CellRequest:
    return request(Sized(lengths=(1,)), 1, model=None)


def test_a_new_benchmark_whose_prompts_are_short_is_refused_before_its_model_is_asked():
    sized = Sized(lengths=(150, 200))
    with pytest.raises(UnavailableError) as error:
        sized.evaluate(request(sized, 256, model=None))
    # Lengths, mean, the least mean (95 % of 256, less 10 for the answer), the longest length.
    assert [int(number) for number in re.findall(r"\d+", str(error.value))] == [
        150, 200, 175, 256, 10, 234, 210,
    ]  # fmt: skip


@given(
    sizes=st.lists(st.integers(1, 400), min_size=1, max_size=6),
    answer=st.integers(0, 50),
    length=st.integers(1, 400),
    slack=st.integers(0, 60),
)
def test_prompts_are_full_from_95_per_cent_of_the_length_on(sizes, answer, length, slack):
    sized = Loose(lengths=tuple(sizes), answer=answer, slack=slack)
    cell = replace(any_cell(), eval_length=length)

    def filled() -> bool:
        try:
            sized.require_filled(cell, sized.build(cell))
        except UnavailableError:
            return False
        return True

    least = min(95 * length, 100 * (length - slack))
    assert filled() == (100 * (sum(sizes) + len(sizes) * answer) >= least * len(sizes))


def test_key_prompts_fill_the_length_whatever_the_form_in_words_does():
    many_shot = benchmark("many_shot", profile="tiny")
    assert not many_shot.fills_length
    assert not many_shot.in_words
    cell = request(many_shot, 128, held_out=streams())
    prompts, longer = many_shot.prompts(cell), replace(cell, eval_length=256)
    with pytest.raises(UnavailableError, match="got prompts of 127 to 127 tokens"):
        many_shot.require_filled(longer, prompts)


def test_published_lines_are_no_cell_of_a_length_that_they_do_not_have(test_data):
    folder = test_data / "longeval"
    lines = (folder / "300_lines.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    begun = "Line <{}>: <REGISTER_CONTENT> is"
    sizes = [len((row["prompt"] + begun.format(row["random_idx"][0])).encode()) for row in rows]
    published = benchmark("long_eval", cases="published")
    for length in (2 * max(sizes), 8 * max(sizes)):
        cell = request(published, length, model=None, data_folders={"long_eval": folder})
        with pytest.raises(UnavailableError, match=f"at most {max(sizes) + 15:,} tokens"):
            published.evaluate(cell)
    cell = request(published, max(sizes) + 15, model=None, data_folders={"long_eval": folder})
    found = published.require_filled(cell, published.prompts(cell))
    assert (found.lengths["min"], found.lengths["max"]) == (min(sizes), max(sizes))
