"""one_ruler: a reader of the printed prompts, and ONERULER's scores for answers marked by hand."""

import functools
import re
from dataclasses import replace

import pytest

from lce_core.benchmarks._base import Sample
from lce_core.benchmarks.one_ruler import TASKS
from lce_core.contracts.benchmark_cases import held_out, words_tokenizer
from tests.support.cells import benchmark, request

NEEDLE = re.compile(r'The special magic number for "([^"]+)" is: (\d{7})\.')
QUESTION = re.compile(r"<Question> What special magic numbers associated with (.+) are mentioned")
COUNTS = {  # needles, different keys, asked keys
    "niah_single": (1, 1, 1),
    "niah_multikey": (4, 4, 1),
    "niah_multivalue": (4, 1, 1),
    "niah_multiquery": (2, 2, 2),
    "niah_none": (4, 4, 1),
}
LENGTH = 1100


@functools.cache
def built(task: str):
    asked = benchmark("one_ruler", num_samples=12)
    tokenizer = words_tokenizer()
    cell = request(asked, LENGTH, task=task, tokenizer=tokenizer, held_out=held_out(in_words=True))
    prompts = asked.build(cell)
    return prompts, [tokenizer.decode(one.ids, skip_special_tokens=True) for one in prompts]


@pytest.mark.parametrize("task", TASKS)
def test_the_references_are_the_numbers_that_a_reader_finds(task):
    depths = []
    for prompt, text in zip(*built(task), strict=True):
        context = text.partition("<text>\n")[2].partition("\n</text>")[0]
        needles = NEEDLE.findall(context)
        asked = re.findall('"([^"]+)"', QUESTION.search(text)[1])
        assert (len(needles), len(dict(needles)), len(asked)) == COUNTS[task]
        found = {number for key, number in needles if key in asked}
        assert {*prompt.references} == (found or {"none"})
        assert prompt.reference == ", ".join(prompt.references)
        right, *wrong = prompt.labels
        assert right == prompt.reference
        if task == "niah_none":
            (number,) = wrong
            assert number in dict(needles).values()
        else:
            assert len({*wrong}) == 3
            numbers = [number for label in wrong for number in label.split(", ")]
            assert len(numbers) == 3 * len(prompt.references)
            assert not any(number in text for number in numbers)
            assert {len(label) for label in wrong} == {len(right)}
        assert text.endswith("\n <Answer> List all numbers here </Answer>\n<Answer>")
        assert 0.95 * LENGTH <= len(prompt.ids) + 64 <= LENGTH
        depths.append(prompt.depth)
        if task == "niah_single":
            before, after = re.split(NEEDLE.pattern.replace("(", "(?:"), context)
            share = len(before) / len(before + after)
            assert share == pytest.approx(prompt.depth / 100, abs=0.1)
    assert (None in depths) == (task == "niah_none")
    prompts, texts = built(task)
    assert len({text[:300] for text in texts}) > len(texts) / 2
    if task == "niah_single":
        assert len({prompt.reference for prompt in prompts}) == len(prompts)


@pytest.mark.parametrize(
    ("task", "answer", "right"),
    [
        # One line for each rule of compare_numbers and compare_none in the reference's evaluate.py.
        ("niah_multiquery", " 1234567, 7654321 </Answer>", 1),
        ("niah_multiquery", "\uff11\uff12\uff13\uff14\uff15\uff16\uff17 7654321", 1),
        ("niah_multiquery", " 1234567 1234567", 0),
        ("niah_multiquery", " 1234567, 7654321, 01234567", 0),
        ("niah_multiquery", " none 1234567, 7654321", 0),
        ("niah_multiquery", " None 1234567, 7654321", 1),
        ("niah_multiquery", f" 1234567, {'7' * 5000}", 0),
        ("niah_none", " NONE", 1),
        ("niah_none", " n o n e, 1234567", 1),
        ("niah_none", " no such number", 0),
        # Text after the mark does not count, because generation stops there.
        ("niah_none", " 1234567 </Answer> none", 0),
        ("niah_multiquery", " 1234567, 7654321</Answer> none 99", 1),
    ],
)
def test_answers_get_the_scores_of_the_reference(task, answer, right):
    asked = benchmark("one_ruler")
    prompt = built(task)[0][0]
    if task != "niah_none":
        prompt = replace(prompt, references=("1234567", "7654321"))
    assert asked.score_answer(task, prompt, answer) == right


@pytest.mark.parametrize(("reference", "higher"), [("1234567", False), ("none", True)])
def test_answers_that_say_none_are_counted_in_both_directions(reference, higher):
    answers = [" none", " None</Answer>", " 12</Answer> none", ""]
    samples = [Sample(n, 9, 0.0, prediction=a, reference=reference) for n, a in enumerate(answers)]
    _, said = benchmark("one_ruler").scores(samples)
    assert (said.metric, said.value, said.higher_is_better) == ("says_none", 0.5, higher)
