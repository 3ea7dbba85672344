"""The tasks on MMLU: find questions by their number, and copy or solve them.

The haystack is from MMLU's split `auxiliary_train`, the asked question from the split `test`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from lce_core.benchmarks import DataRow, DataSet, Table, read_rows
from lce_core.benchmarks.ruler._drafts import Draft, Draw, Units, percent
from lce_core.errors import DataError

MMLU = DataSet(
    "mmlu_all",
    ("all/test-*.parquet", "all/auxiliary_train-*.parquet"),
    "huggingface.co/datasets/cais/mmlu (folder all)",
    (Table("all", "test"), Table("all", "auxiliary_train")),
)
NUM_ROWS = {"test": 14042, "auxiliary_train": 99842}
"""Number of questions in each published split."""
LETTERS = "ABCD"
ORDINALS = ("1st", "2nd", "3rd", "4th")
NUM_EQUAL = 4
"""Number of questions with the same number, in the tasks mv_niah_*."""
NUM_SHOTS = 5
"""Number of solved questions of the context before the asked one, in the tasks that solve."""
_COPY = (
    "Below are some questions. I will ask you to copy {some} of them. Please copy and paste the"
    " {questions} you find."
)
_SOLVE = (
    "Below are some questions. I will ask you to solve one of them. Please solve the question you"
    " find and make sure to put the answer (and only answer) inside \\boxed\\{\\}."
)


@dataclass(frozen=True)
class Copying:
    """Wording of one task."""

    kind: Literal["copy", "copy all", "solve"]
    instruction: str
    """Sentence that asks for {order}Question {number}."""
    begun: str = "\nQuestion {number}:"
    """Beginning of the answer."""
    equal: int = 0
    """Number of questions with the same number; 0 means that numbers are random."""
    solution: str = ""
    """Answer of a solved question, after the instruction."""


TASKS = {
    "mk_niah_easy": Copying("copy", "Please copy the {order}Question {number} from the context."),
    "mk_niah_medium": Copying(
        "solve",
        "Please copy the Question {number} from the context and then solve it with an answer from"
        " A, B, C, D.",
        solution="\nQuestion {number}: {text}\nSolution: {answer}",
    ),
    "mk_niah_hard": Copying(
        "solve",
        "Please solve the Question {number} from the context with an answer from A, B, C, D.",
        begun="\nSolution:",
        solution="\nSolution: {answer}",
    ),
    "mv_niah_easy": Copying(
        "copy all",
        "Please find and copy all the Question {number} from the context.",
        equal=NUM_EQUAL,
    ),
    "mv_niah_medium": Copying(
        "copy",
        "Please first copy all the Question {number} from the context and then copy the"
        " {order}Question {number} at the end.",
        equal=NUM_EQUAL,
    ),
    "mv_niah_hard": Copying(
        "copy",
        "Please copy the {order}Question {number} from the context.",
        equal=NUM_EQUAL,
    ),
}


@dataclass(frozen=True)
class Question:
    """A question with its four choices in one line, and the letter of the right choice."""

    text: str
    letter: str

    @property
    def answer(self) -> str:
        return f"\\boxed{{{self.letter}}}"


@dataclass(frozen=True)
class Numbered:
    """A question with its number in a prompt, and its rank among questions with this number."""

    question: Question
    number: str
    order: str

    def filled(self, template: str) -> str:
        return template.format(
            number=self.number,
            order=self.order,
            text=self.question.text,
            answer=self.question.answer,
        )


class NumberedQuestions:
    """One of the tasks; the size of a prompt is its number of other questions."""

    def __init__(
        self,
        task: Copying,
        asked: Sequence[Question],
        others: Sequence[Question],
        new_tokens: int,
        eval_length: int,
    ) -> None:
        self._task, self._asked, self._others = task, asked, others
        self.new_tokens = new_tokens
        least = NUM_SHOTS if task.kind == "solve" else 1
        self.sizes = range(least, max(least, min(len(others), eval_length)) + 1)
        self.units = Units(1, least, new_tokens, "redrawn smaller", len(others), least)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        rng, task = draw.rng, self._task
        questions = rng.sample(self._others, size)
        place = rng.randint(0, size)
        questions.insert(place, self._asked[index])
        listed = _numbered(questions, _numbers(size + 1, task.equal, rng), ordered=task.equal > 0)
        asked = listed[place]
        shots = []
        if task.kind == "solve":
            shots = rng.sample([one for one in listed if one is not asked], NUM_SHOTS)
        references: tuple[str, ...] = (asked.question.text,)
        if task.kind == "copy all":
            references = tuple(one.question.text for one in listed if one.number == asked.number)
        if task.kind == "solve":
            references = (asked.question.answer,)
        evidence = asked.question.text if task.kind == "solve" else ""
        same = [one for one in listed if one.number == asked.number]
        text, *controls = (prompt_text(task, one, shots, asked) for one in (listed, [], same))
        depth = percent(place, size)
        return Draft(text, references, depth, evidence=evidence, controls=tuple(controls))


def prompt_text(
    task: Copying, listed: Sequence[Numbered], shots: Sequence[Numbered], asked: Numbered
) -> str:
    head = _SOLVE
    if task.kind != "solve":
        some, questions = ("one", "question") if task.kind == "copy" else ("some", "questions")
        head = _COPY.format(some=some, questions=questions)
    return "\n\n".join(
        [
            head,
            *(one.filled("Question {number}: {text}") for one in listed),
            *(one.filled(task.instruction + task.solution) for one in shots),
            asked.filled(task.instruction + task.begun),
        ]
    )


def _numbers(count: int, equal: int, rng: Random) -> list[str]:
    """Draw `count` numbers of seven digits; with `equal`, each occurs at most that many times."""
    found = distinct_numbers(math.ceil(count / equal) if equal else count, rng) * max(1, equal)
    rng.shuffle(found)
    return found[:count]


def distinct_numbers(count: int, rng: Random) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[str(rng.randint(10**6, 10**7 - 1))] = None
    return [*found]


def _numbered(
    questions: Sequence[Question], numbers: Sequence[str], *, ordered: bool
) -> list[Numbered]:
    seen, found = Counter[str](), []
    for question, number in zip(questions, numbers, strict=True):
        order = f"{ORDINALS[seen[number]]} (1 indexed) " if ordered else ""
        found.append(Numbered(question, number, order))
        seen[number] += 1
    return found


def read_mmlu(
    folders: Mapping[str, Path], split: Literal["test", "auxiliary_train"]
) -> list[Question]:
    """Read all questions of a split, in file order."""
    files = [
        file
        for file in MMLU.files(folders)
        if file.name.startswith(f"{split}-") or file.parent.name == split
    ]
    found = [
        _question(row, file)
        for file in files
        for row in read_rows(file, ("question", "choices", "answer"))
    ]
    MMLU.require_rows(folders, split, len(found), NUM_ROWS[split])
    return found


def _question(row: DataRow, file: Path) -> Question:
    try:
        choices = [
            f"{letter}. {choice}" for letter, choice in zip(LETTERS, row["choices"], strict=True)
        ]
        text = " ".join([row["question"], *choices])
        return Question(re.sub(r"\s+", " ", text), LETTERS[row["answer"]])
    except (TypeError, ValueError, IndexError) as error:
        raise DataError(
            file, error, "a question, four choices and an answer 0 to 3", "get the file again"
        ) from None
