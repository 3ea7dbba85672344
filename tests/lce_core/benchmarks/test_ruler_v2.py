"""ruler_v2: a reader of the printed prompts, and the reference's scores for answers by hand."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from lce_core.benchmarks import CellData
from lce_core.benchmarks.ruler._documents import HOTPOT
from lce_core.benchmarks.ruler_v2 import NEW_TOKENS, letter, match
from lce_core.benchmarks.ruler_v2._tasks import COPYING as QUESTIONS
from lce_core.benchmarks.ruler_v2._tasks import MMLU, NumberedQuestions, read_mmlu
from lce_core.contracts.benchmark_cases import words_tokenizer
from lce_core.errors import DataError, UnavailableError
from tests.support.cells import TOY, benchmark, request
from tests.support.data.fixture_data import fixture_folders

NEEDLE = re.compile(r"One of the special magic numbers for (.+) is: (\d{10})\.")
QUESTION = re.compile(r"Question (\d{7}): (Which (?:test|auxiliary_train) boat .*)")
ORDER = {"1st": 0, "2nd": 1, "3rd": 2, "4th": 3}
LENGTH = 3000


def built(root: Path, task: str, length: int = LENGTH, **changes):
    asked = benchmark("ruler_v2", num_samples=6)
    folders = fixture_folders(asked.reads(task), root)
    cell = request(
        asked, length, task=task, tokenizer=words_tokenizer(), data_folders=folders, **changes
    )
    found = asked.build(cell)
    texts = [words_tokenizer().decode(one.ids, skip_special_tokens=True) for one in found]
    return list(zip(found, texts, strict=True))


@pytest.mark.parametrize(("task", "num_values"), [("mk_niah_basic", 1), ("mv_niah_basic", 4)])
def test_needles_of_other_keys_surround_the_asked_values(tmp_path, task, num_values):
    for prompt, text in built(tmp_path, task):
        head, *lines, question = text.split("\n")
        assert head.startswith("Some" if num_values > 1 else "A special magic number is hidden")
        needles = [NEEDLE.fullmatch(line).groups() for line in lines]
        key = re.search(r"(?:number|numbers) for (.+?) mentioned", question)[1]
        places = [at for at, (name, _) in enumerate(needles) if name == key]
        assert {*prompt.references} == {needles[at][1] for at in places}
        # All keys have as many values, except those whose last value did not fit.
        counts = Counter(Counter(name for name, _ in needles).values())
        assert {*counts} <= {num_values, num_values - 1}
        assert counts[num_values - 1] < num_values
        mean = sum(places) / len(places) / (len(needles) - 1)
        assert mean == pytest.approx(prompt.depth / 100, abs=0.08)
        assert len(prompt.ids) + NEW_TOKENS[task] <= LENGTH


@pytest.mark.parametrize("task", QUESTIONS)
def test_the_asked_question_is_found_by_its_number_and_order(tmp_path, task):
    orders = set()
    for prompt, text in built(tmp_path, task):
        head, *parts = text.split("\n\n")
        assert ("solve" in head) == (task in ("mk_niah_medium", "mk_niah_hard"))
        asked = parts.pop()
        context = [QUESTION.fullmatch(part) for part in parts]
        shots = [part for part, found in zip(parts, context, strict=True) if not found]
        listed = [found.groups() for found in context if found]
        by_number: dict[str, list[str]] = {}
        for number, question in listed:
            by_number.setdefault(number, []).append(question)
        number = re.search(r"Question (\d{7})", asked)[1]
        own = by_number[number]
        sizes = {len(same) for same in by_number.values()}
        assert max(sizes) == (4 if task.startswith("mv") else 1)
        order = re.search(r"the (\w+) \(1 indexed\) Question", asked)
        if task == "mv_niah_easy":
            assert list(prompt.references) == own
        elif task.startswith("mk_niah") and task != "mk_niah_easy":
            # Made-up questions have the right letter of their number modulo four.
            (question,) = own
            right = "ABCD"[int(re.search(r"number (\d+)", question)[1]) % 4]
            assert prompt.references == (f"\\boxed{{{right}}}",)
            assert len(shots) == 5
            assert not any(number in shot for shot in shots)
            for shot in shots:
                shown = by_number[re.search(r"Question (\d{7})", shot)[1]][0]
                right = "ABCD"[int(re.search(r"number (\d+)", shown)[1]) % 4]
                assert shot.endswith(f"\nSolution: \\boxed{{{right}}}")
                assert (shown in shot) == (task == "mk_niah_medium")
        else:
            (reference,) = prompt.references
            assert own[ORDER[order[1]] if order else 0] == reference
            assert "test boat" in reference
        orders.add(order[1] if order else None)
        begun = "Solution:" if task == "mk_niah_hard" else f"Question {number}:"
        assert asked.endswith(f".\n{begun}")
    assert (orders == {None}) == (task[:2] == "mk" or task == "mv_niah_easy")


@pytest.mark.parametrize("task", ["qa_basic", "qa_easy", "qa_medium", "qa_hard"])
def test_documents_are_found_by_their_number(tmp_path, task):
    for prompt, text in built(tmp_path, task):
        documents = dict(re.findall(r"Document (\d{7}):\n(.+?)\n\n", text, re.DOTALL))
        assert len(documents) > 10
        assert len({*documents.values()}) == len(documents)
        end = text.rpartition("\n\n")[2]
        row = re.search(r"gate (\d)\." if task == "qa_basic" else r"town (\d) ", end)[1]
        if task == "qa_basic":
            asked = end.removeprefix("Text: ").removesuffix("\nMost relevant document index:")
            assert documents[prompt.reference] == asked
        elif task == "qa_easy":
            assert len(prompt.references) == 2
            assert {documents[one].split("\n")[0][:6] for one in prompt.references} == {
                f"Town {row}"
            }
        else:
            assert prompt.references == (f"bridge {row}",)
            assert end.endswith("?\nAnswer:")
        own = [name for name, what in documents.items() if what.startswith(f"Town {row}-")]
        assert len(own) == 10


@pytest.mark.parametrize(
    ("task", "answer", "references", "score"),
    [
        # Rules of eval_ruler2: all, 2steps and part.
        ("mv_niah_basic", "1 2", ["1", "2", "3", "4"], 0.5),
        ("mk_niah_basic", "<think>12</think> 13", ["12"], 0),
        ("mk_niah_basic", "13 Answer: 12", ["12"], 1),
        ("mk_niah_basic", "12 Answer: 13 Answer:", ["12"], 0),
        ("mv_niah_medium", "a\n\nb\n\nc d", ["C"], 1),
        ("qa_easy", " 12", ["11", "12"], 1),
        ("qa_hard", "Document 12:\nyes\nit is\n\nno", ["yes"], 0),
        ("qa_hard", "Document 12: yes", ["yes"], 1),
        # eval_mcq, up to the blank line.
        ("mk_niah_hard", " \\boxed{A}\n\nPlease solve\nSolution: \\boxed{B}", ["\\boxed{A}"], 1),
        ("mk_niah_medium", " text\nSolution: \\boxed{C}", ["\\boxed{C}"], 1),
        ("mk_niah_hard", " \\boxed{A} or \\boxed{B}", ["\\boxed{A}"], 0),
    ],
)
def test_answers_get_the_scores_of_the_reference(task, answer, references, score):
    assert match(task, answer, references) == score


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("\\boxed{B}", "B"),
        ("\\boxed{A or B}", "B"),
        ("\\boxed{\\text{D}}", "D"),
        ("answer : c", "c"),
        ("Answer: Boat", None),
    ],
)
def test_a_letter_is_read_as_in_the_reference(answer, expected):
    assert letter(answer) == expected


def test_the_data_set_counts_its_questions_and_refuses_fewer(tmp_path):
    asked = benchmark("ruler_v2")
    data = fixture_folders((MMLU, HOTPOT), tmp_path)
    assert asked.data_samples(CellData(TOY, "mk_niah_hard", 4096, data)) == 6
    assert asked.data_samples(CellData(TOY, "mk_niah_hard", 4096, {})) == 14042
    (declared,) = json.loads((data["hotpotqa"] / "subset.json").read_bytes()).values()
    assert asked.data_samples(CellData(TOY, "qa_hard", 4096, data)) == declared < 7405
    assert asked.data_samples(CellData(TOY, "qa_hard", 4096, {})) == 7405
    assert asked.data_samples(CellData(TOY, "mv_niah_basic", 4096, {})) is None
    few: list[Any] = [{}] * 3
    with pytest.raises(
        UnavailableError, match="got 3 rows of auxiliary_train; expected at least 5"
    ):
        NumberedQuestions(QUESTIONS["mk_niah_hard"], few, few, 4096)
    (data["mmlu_all"] / "subset.json").unlink()
    with pytest.raises(DataError, match="all 14,042 rows"):
        read_mmlu(data, "test")
