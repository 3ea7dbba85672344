"""What is drawn for prompts has the values and the spread that the benchmarks' authors give it."""

import re
from pathlib import Path

import numpy as np
import pytest

from lce_core.benchmarks.long_eval.lines import generated_prompts, line_words
from lce_core.benchmarks.many_shot.demonstrations import drawn_order
from tests.support.cells import TOY, benchmark, request
from tests.support.ruler.prompts import prompts_of, request_for, stand_in_data, text_of

BYTES = TOY.tokenizer(None)


def test_clean_passkeys_have_five_digits():
    passkey = benchmark("passkey", profile="clean", num_samples=100)
    keys = [int(prompt.reference) for prompt in passkey.prompts(request(passkey, 700))]
    assert all(10_000 <= key < 100_000 for key in keys)
    assert len(set(keys)) == 100
    assert max(keys) > 90_000


def test_depth_asks_the_line_in_which_it_falls():
    depths = [float(depth) for depth in range(5, 100, 10)]
    draws = [np.random.default_rng(seed) for seed in range(len(depths))]
    long_eval = benchmark("long_eval", profile="clean")
    asked = request(long_eval, 1500)
    for depth, prompt in zip(
        depths, generated_prompts(asked, line_words(), depths, draws), strict=True
    ):
        text = BYTES.decode(prompt.ids)
        lines = re.findall(r"line (\S.*?): REGISTER_CONTENT is <(\d+)>", text)
        assert len(lines) > 8
        place = int(depth * len(lines) // 100)
        assert lines[place][1] == prompt.reference
        assert f"in line {lines[place][0]}?" in text


def test_balanced_rounds_begin_with_any_class():
    labels = [label for label in "abcdef" for _ in range(3)]
    firsts = set()
    for seed in range(60):
        order = drawn_order(labels, 12, np.random.default_rng(seed), balanced=True)
        rounds = [[labels[index] for index in order[start : start + 6]] for start in (0, 6)]
        assert [sorted(one) for one in rounds] == [sorted("abcdef")] * 2
        firsts |= {rounds[0][0], rounds[1][0]}
    assert firsts == set("abcdef")


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return stand_in_data(tmp_path_factory.mktemp("data"))


def test_needles_of_ruler_lie_at_forty_depths(folders):
    forty = {round(step * 100 / 39) for step in range(40)}  # none of them ends in a half
    prompts = prompts_of(request_for("niah_single_2", 1200, folders), num_samples=24)
    assert {prompt.depth for prompt in prompts} <= forty
    assert len({prompt.depth for prompt in prompts}) > 8


def test_each_variable_of_ruler_takes_its_value_from_the_one_before(folders):
    for prompt in prompts_of(request_for("vt", 3000, folders)):
        task = text_of(prompt).rsplit("\n\n\n\n", 1)[1]
        value = task.split("assigned the value ")[1].split(" ")[0]
        assert task.endswith(f" 5 variables are assigned the value {value}, they are: ")
        facts = dict(re.findall(r"VAR (\w+) = (?:VAR )?(\w+)", task))
        assert value in facts.values()
        assert set(facts) == set(prompt.references)
        assert len(facts) == len(set(facts.values())) == 5, "no two take it from the same one"


def test_words_of_ruler_are_numbered_from_one(folders):
    for prompt in prompts_of(request_for("cwe", 6000, folders), num_samples=2):
        listed = text_of(prompt).rsplit("most often.\n", 1)[1].split("\nQuestion")[0]
        numbers = [int(number) for number in re.findall(r"(\d+)\. \S+", listed)]
        assert numbers == list(range(1, len(numbers) + 1))
