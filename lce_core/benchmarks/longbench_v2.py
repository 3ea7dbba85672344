"""LongBench v2: 503 multiple-choice questions about long documents, with the letters A to D.

Tasks are the data set's lengths: `short` (below 32,000 words), `medium` (to 128,000) and `long`. A
prompt that exceeds the cell's length loses its middle, as in the authors' script.
The prompt begins the answer, "The correct answer is", because a base model does not follow the
instruction to write it.
"""

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from lce_core.benchmarks import (
    CellData,
    CellRequest,
    DataRow,
    DataSet,
    Examples,
    Profile,
    Prompt,
    Sampled,
    Source,
    Table,
    calls,
    cut_middle_to_fit,
    encode,
    marking,
    read_rows,
    spread,
    token_ids,
)
from lce_core.errors import DataError
from lce_core.models import LanguageModel
from lce_core.store.identity import fingerprint

NUM_QUESTIONS = {"short": 180, "medium": 215, "long": 108}
"""Questions by task, 503 in all (arXiv:2412.15204)."""
LABELS = ("(A)", "(B)", "(C)", "(D)")
NEW_TOKENS = 32
"""Maximum tokens of an answer, which only has to name a letter."""
BEGUN = "The correct answer is"
_MIN_PROMPT = 128
"""Fewest tokens of a prompt; fewer could not hold the question."""
_CHOICES = tuple(f"choice_{letter}" for letter in "ABCD")
_COLUMNS = ("length", "context", "question", *_CHOICES, "answer")
_DATA = DataSet(
    "longbench_v2",
    ("data.json",),
    "huggingface.co/datasets/THUDM/LongBench-v2",
    (Table(split="train"),),
)


class LongBenchV2(Sampled):
    """Multiple-choice questions about documents: the score is the fraction of right letters."""

    kind = "understanding"
    seeded = False
    # Documents have their own lengths; longer ones are cut.
    fills_length = False
    task_names = tuple(NUM_QUESTIONS)
    profiles = {
        "clean": Profile("all questions"),
        "fast": Profile("50 questions per task, evenly spaced", num_samples=50),
    }
    answer_tokens = NEW_TOKENS

    def num_prompts(self, task: str) -> int:
        published = NUM_QUESTIONS[task]
        return min(self.setting("num_samples") or published, published)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        least = _MIN_PROMPT + NEW_TOKENS
        reason = f"eval_length {eval_length}: a question needs at least {least} tokens"
        return None if eval_length >= least else reason

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (_DATA,)

    def data_samples(self, cell: CellData) -> int:
        (file,) = _DATA.patterns
        declared = _DATA.num_rows(cell.data_folders, file, sum(NUM_QUESTIONS.values()))
        return min(NUM_QUESTIONS[cell.task], declared)

    def build(self, request: CellRequest) -> list[Prompt]:
        (file,) = _DATA.files(request.data_folders)
        rows = list(read_rows(file, _COLUMNS))
        _DATA.require_rows(request.data_folders, file.name, len(rows), sum(NUM_QUESTIONS.values()))
        for number, row in enumerate(rows, start=1):
            _require_valid(row, f"{file}: row {number}")
        own = [row for row in rows if row["length"] == request.task]
        if not own:
            raise _DATA.missing(f"question of length {request.task!r}")
        return [
            _prompt(request, own[index])
            for index in spread(len(own), self.num_prompts(request.task))
        ]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return float(prompt.reference == f"({extracted(_begun(answer))})")

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return _stated(_begun(answer), r"\(([A-D])\)") is not None


def _prompt(request: CellRequest, row: DataRow) -> Prompt:
    text, begun = prompt_text(row), token_ids(request, f"\n\n{BEGUN}")
    room = request.eval_length - NEW_TOKENS - len(begun)
    context = cut_middle_to_fit(request, text, room)
    bare = cut_middle_to_fit(request, prompt_text({**row, "context": ""}), room)
    return Prompt(
        np.array([*context, *begun], dtype=np.int64),
        f"({row['answer']})",
        labels=LABELS,
        context_tokens=len(context),
        cluster=fingerprint([row["context"]])[:12],
        controls=((*bare, *begun.tolist()),),
        is_cut=context != encode(request, text),
    )


def _begun(answer: str) -> str:
    # Decoders of SentencePiece tokenizers strip the blank before an answer's first word.
    return f"{BEGUN} {answer.removeprefix(' ')}"


def prompt_text(row: Mapping[str, Any]) -> str:
    """Return the authors' prompt, prompts/0shot.txt."""
    choices = "\n".join(f"({letter}) {row[f'choice_{letter}'].strip()}" for letter in "ABCD")
    return (
        "Please read the following text and answer the question below.\n\n"
        f"<text>\n{row['context'].strip()}\n</text>\n\n"
        f"What is the correct answer to this question: {row['question'].strip()}\n"
        f"Choices:\n{choices}\n\n"
        f'Format your response as follows: "{BEGUN} (insert answer here)".'
    )


def extracted(response: str) -> str | None:
    """Return the letter that a response states; None if it states none.

    Asterisks are ignored, and a letter in brackets counts before one without. Source:
    extract_answer in pred.py of github.com/THUDM/LongBench@2e00731.
    """
    return _stated(response, r"\(([A-D])\)") or _stated(response, "([A-D])")


def _stated(response: str, letter: str) -> str | None:
    found = re.search(f"{BEGUN} {letter}", response.replace("*", ""))
    return found[1] if found else None


def _require_valid(row: DataRow, place: str) -> None:
    wrong = [column for column in _COLUMNS if not isinstance(row[column], str)]
    if wrong or row["length"] not in NUM_QUESTIONS or row["answer"] not in ("A", "B", "C", "D"):
        raise DataError(
            place,
            f"columns {', '.join(wrong)} without text"
            if wrong
            else f"length {row['length']!r} and answer {row['answer']!r}",
            "text in all columns, a length short, medium or long, and an answer A to D",
            "use the data set in its published form",
        )


BENCHMARK = LongBenchV2
SOURCE = Source(
    paper="arXiv:2412.15204",
    place="section 4, zero-shot without reasoning",
    reference="github.com/THUDM/LongBench@2e00731f8d0bff23dc4325161044d0ed8af94c1e",
    differs="the prompt begins the answer and has no chat template; decoding is greedy and stops"
    " after the letter; the length includes the answer's tokens; the two ends of a long prompt are"
    " decoded apart, so that characters at the seam may differ",
)
EVIDENCE = tuple(
    calls(LongBenchV2.score_answer, score, origin, **marking("short", "(B)", answer))
    for answer, score, origin in (
        (" (B).", 1.0, "extract_answer by hand: a letter in brackets"),
        ("(B).", 1.0, "the same, without the blank after the prompt's last word"),
        (" **B**", 1.0, "extract_answer by hand: without asterisks and brackets"),
        (" A. The correct answer is (B)", 1.0, "a letter in brackets comes before one without"),
        (" (A) or (B)", 0.0, "the first letter in brackets"),
        (" b", 0.0, "no capital letter"),
    )
)
EXAMPLES: Examples = ({"num_samples": 3},)
VERSION = 2
