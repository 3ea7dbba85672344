"""The tasks of RULER v2: needles among needles, documents of HotpotQA, and questions of MMLU.

The haystack of MMLU is from its split `auxiliary_train`, the asked question from the split `test`.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np

from lce_core.benchmarks import DataRow, DataSet, Table, read_rows
from lce_core.benchmarks.ruler._documents import Collection
from lce_core.benchmarks.ruler._drafts import Draft, Draw, percent
from lce_core.benchmarks.ruler._niah import NEEDLE, ONE, SEVERAL, among_lines
from lce_core.benchmarks.ruler._vocabulary import draw_item
from lce_core.errors import DataError, UnavailableError

_SEVERAL = SEVERAL.replace("memorize it", "memorize them")
DIGITS = 10
_FIND = (
    "Below are some documents. I will give you a {what} at the end. Please find the {target}. Only"
    " give me the index without any document contents."
)
_ANSWER = (
    "Below are some documents. I will ask you to answer a question based on the documents. Please"
    " answer the question."
)
MMLU = DataSet(
    "mmlu_all",
    ("all/test-*.parquet", "all/auxiliary_train-*.parquet"),
    "huggingface.co/datasets/cais/mmlu (folder all)",
    (Table("all", "test"), Table("all", "auxiliary_train")),
)
NUM_ROWS = {"test": 14042, "auxiliary_train": 99842}
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


class ManyNeedles:
    """mk_niah_basic or mv_niah_basic; the size of a prompt is its number of other needles."""

    def __init__(self, num_values: int, eval_length: int) -> None:
        self._num_values = num_values
        self.sizes = range(num_values, num_values + eval_length + 1)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        rng, count = draw.rng, self._num_values
        keys = _distinct("words", 1 + math.ceil(size / count), rng)
        asked, others = keys[0], (keys[1:] * count)[:size]
        lines = [_needle(key, _value(rng)) for key in others]
        if count > 1:
            rng.shuffle(lines)
        values = [_value(rng) for _ in range(count)]
        facts = [_needle(asked, value) for value in values]
        context, depths = among_lines(lines, facts, rng)
        template, what = (ONE, "number") if count == 1 else (_SEVERAL, "numbers")
        text, *controls = (
            template.format(values=what, context=one, query=asked)
            for one in (context, "", "\n".join(facts))
        )
        return Draft(text, tuple(values), float(np.mean(depths)), controls=controls)


def _distinct(kind: str, count: int, rng: Random) -> list[str]:
    found: dict[str, None] = {}
    while len(found) < count:
        found[draw_item(kind, rng)] = None
    return list(found)


def _value(rng: Random) -> str:
    return str(rng.randint(10 ** (DIGITS - 1), 10**DIGITS - 1))


def _needle(key: str, value: str) -> str:
    return NEEDLE.format(values="numbers", key=key, value=value)


@dataclass(frozen=True)
class Asking:
    """Wording of a task qa_*."""

    head: str
    asked: str
    """Text after the documents, with the fields {text} of a document and {question}."""
    answer: Literal["first index", "any index", "answer"]


ASKING = {
    "qa_basic": Asking(
        _FIND.format(what="text", target="document index of the text"),
        "Text: {text}\nMost relevant document index:",
        "first index",
    ),
    "qa_easy": Asking(
        _FIND.format(
            what="question",
            target="index of the most relevant document that can help answer the question",
        ),
        "Question: {question}\nIndex of the most relevant document that can help answer the"
        " question:",
        "any index",
    ),
    "qa_medium": Asking(
        _ANSWER,
        "Please first find and copy paste the documents relevant to the following question and then"
        " answer it based on the documents you find.\n\nQuestion: {question}\nAnswer:",
        "answer",
    ),
    "qa_hard": Asking(
        _ANSWER,
        "Please answer the following question based on the documents.\n\nQuestion: {question}"
        "\nAnswer:",
        "answer",
    ),
}


class NumberedDocuments:
    """A task qa_*; the size of a prompt is its number of documents of other questions."""

    def __init__(
        self, task: Asking, collection: Collection, chosen: Sequence[int], eval_length: int
    ) -> None:
        self._task, self._documents = task, collection.documents
        self._questions = [collection.questions[number] for number in chosen]
        own = max(len(question.own) for question in self._questions)
        self.sizes = range(min(max(0, len(self._documents) - own), eval_length) + 1)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        question, rng = self._questions[index], draw.rng
        mine = {*question.own}
        others = [number for number in range(len(self._documents)) if number not in mine]
        # The smallest size has only the documents with supporting facts.
        shown = [*(question.own if size else question.evidence), *rng.sample(others, size)]
        rng.shuffle(shown)
        names = dict(zip(shown, _distinct("numbers", len(shown), rng), strict=True))
        first = question.evidence[0]
        asked = self._task.asked.format(text=self._documents[first], question=question.text)
        wanted = [first] if self._task.answer == "first index" else [*question.evidence]
        references = tuple(names[at] for at in wanted)
        if self._task.answer == "answer":
            references = tuple(dict.fromkeys(question.answers))
        parts = [
            [f"Document {names[at]}:\n{self._documents[at]}" for at in some]
            for some in (shown, (), wanted)
        ]
        text, *controls = ("\n\n".join([self._task.head, *one, asked]) for one in parts)
        depth = float(np.mean([percent(shown.index(at), len(shown) - 1) for at in wanted]))
        return Draft(text, references, depth, question.cluster, controls=controls)


@dataclass(frozen=True)
class Copying:
    """Wording of a task on MMLU; its templates have the fields of a `Question`."""

    kind: Literal["copy", "copy all", "solve"]
    instruction: str
    begun: str = "\nQuestion {number}:"
    equal: int = 0
    """Number of questions with the same number; 0 means that numbers are random."""
    solution: str = ""


COPYING = {
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


Question = dict[str, str]
"""Its `text` with four choices in one line, the `answer` as a letter in a LaTeX box, and in a
prompt its `number`, and its `order` among questions with this number."""


class NumberedQuestions:
    """A task on MMLU; the size of a prompt is its number of other questions."""

    def __init__(
        self, task: Copying, asked: Sequence[Question], others: Sequence[Question], eval_length: int
    ) -> None:
        self._task, self._asked, self._others = task, asked, others
        least = NUM_SHOTS if task.kind == "solve" else 1
        if len(others) < least:
            raise UnavailableError(
                "data set 'mmlu_all'", f"{len(others)} rows of auxiliary_train",
                f"at least {least} for a prompt", "get the whole data set",
            )  # fmt: skip
        self.sizes = range(least, max(least, min(len(others), eval_length)) + 1)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        rng, task = draw.rng, self._task
        questions = rng.sample(self._others, size)
        place = rng.randint(0, size)
        questions.insert(place, self._asked[index])
        listed = _numbered(questions, task.equal, rng)
        asked = listed[place]
        same = [one for one in listed if one["number"] == asked["number"]]
        shots, wanted, evidence = [], [asked["text"]], ""
        if task.kind == "solve":
            shots = rng.sample([one for one in listed if one is not asked], NUM_SHOTS)
            wanted, evidence = [asked["answer"]], asked["text"]
        elif task.kind == "copy all":
            wanted = [one["text"] for one in same]
        text, *controls = (prompt_text(task, one, shots, asked) for one in (listed, [], same))
        depth = percent(place, size)
        return Draft(text, tuple(wanted), depth, evidence=evidence, controls=controls)


def prompt_text(
    task: Copying, listed: Sequence[Question], shots: Sequence[Question], asked: Question
) -> str:
    head = _SOLVE
    if task.kind != "solve":
        some, questions = ("one", "question") if task.kind == "copy" else ("some", "questions")
        head = _COPY.format(some=some, questions=questions)
    solved, begun = task.instruction + task.solution, task.instruction + task.begun
    return "\n\n".join(
        [
            head,
            *(f"Question {one['number']}: {one['text']}" for one in listed),
            *(solved.format(**one) for one in shots),
            begun.format(**asked),
        ]
    )


def _numbered(questions: Sequence[Question], equal: int, rng: Random) -> list[Question]:
    """Give each question a number of seven digits, which at most `equal` share if it is not 0."""
    different = math.ceil(len(questions) / equal) if equal else len(questions)
    numbers = _distinct("numbers", different, rng) * max(1, equal)
    rng.shuffle(numbers)
    seen, found = Counter[str](), []
    for question, number in zip(questions, numbers, strict=False):
        order = f"{ORDINALS[seen[number]]} (1 indexed) " if equal else ""
        found.append({**question, "number": number, "order": order})
        seen[number] += 1
    return found


def read_mmlu(
    folders: Mapping[str, Path], split: Literal["test", "auxiliary_train"]
) -> list[Question]:
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
        answer = f"\\boxed{{{LETTERS[row['answer']]}}}"
        return {"text": re.sub(r"\s+", " ", text), "answer": answer}
    except (TypeError, ValueError, IndexError) as error:
        raise DataError(
            file, error, "a question, four choices and an answer 0 to 3", "get the file again"
        ) from None
