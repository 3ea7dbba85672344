"""NoLiMa: needles that share no word with the question, so that no literal match finds them.

A needle says something about a character, such as where the character lives; the question names
something that follows from it. The needle stands at a line break of a random place in a book. The
data set's licence allows only noncommercial research. lce therefore contains none of it and reads
needles, prompts and books from the user's folder.

NoLiMa's effective length compares `accuracy` with that at 250 to 1,000 tokens, so evaluate a length
of about 1,000 tokens as well.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

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
    calls,
    encoded,
    marking,
    read_rows,
    read_text,
)
from lce_core.errors import DataError

DEPTHS: tuple[float, ...] = tuple(np.linspace(0, 100, 26).tolist())
"""Depths of the needle in per cent, as in the reference's configurations."""
ANSWER = "\n\nAnswer:"
"""Text after the data set's prompt, so that base models answer instead of continuing the prompt."""
FRAME = "{haystack}\n\nQuestion: {question}"
_NEEDLES = "needle_set.json"
_DATA = DataSet(
    "nolima",
    (f"needlesets/{_NEEDLES}", "haystack/rand_shuffle/*.txt"),
    "huggingface.co/datasets/amodaresi/NoLiMa (noncommercial research only)",
)


@dataclass(frozen=True)
class Pair:
    """A needle and a question about it, in which {CHAR} stands for the character."""

    name: str
    needle: str
    question: str
    template: str
    """Prompt with the fields {haystack} and {question}."""
    characters: tuple[str, ...]
    """Names, at least two, of which each prompt draws one."""


@dataclass(frozen=True)
class Book:
    """A text as words with the white space after each; it repeats without end."""

    words: tuple[str, ...]
    breaks: tuple[int, ...]

    @classmethod
    def of(cls, file: Path) -> Self:
        words = tuple(re.findall(r"\S+\s*", read_text(file)))
        breaks = tuple(at for at in range(1, len(words)) if "\n" in words[at - 1])
        if not breaks:
            raise DataError(
                file, "no line break between words", "a text of several lines", "get it again"
            )
        return cls(words, breaks)

    def around(self, place: int, count: int, depth: float, needle: str) -> str:
        """Return `count` words with the needle before the word at `place`, at `depth` per cent."""
        size = len(self.words)
        before = round(count * depth / 100)
        words = [self.words[at % size] for at in range(place - before, place - before + count)]
        first = "".join(words[:before]).rstrip()
        return f"{first} {needle}\n{''.join(words[before:])}"


class NoLiMa(Sampled):
    """Retrieval without literal matches: the score is the fraction of names found."""

    kind = "reasoning"
    task_names = ("onehop", "twohop")
    profiles = {
        "clean": Profile("260 prompts per task, ten at each depth", num_samples=260),
        "fast": Profile("52 prompts per task, two at each depth", num_samples=52),
    }
    answer_tokens = 32

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (_DATA,)

    def data_samples(self, cell: CellData) -> int | None:
        folders = cell.data_folders
        return len(read_pairs(folders, cell.task)) if _DATA.is_in(folders) else None

    def build(self, request: CellRequest) -> list[Prompt]:
        pairs = read_pairs(request.data_folders, request.task)
        files = [file for file in _DATA.files(request.data_folders) if file.suffix == ".txt"]
        if not files:
            raise _DATA.missing("book haystack/rand_shuffle/*.txt")
        books = [Book.of(file) for file in files]
        draws = self.draws(request)
        return [
            self._hidden(request, pairs, books, DEPTHS[index * len(DEPTHS) // len(draws)], rng)
            for index, rng in enumerate(draws)
        ]

    def slack_tokens(self, request: CellRequest) -> int:
        return 16  # prompts grow by whole words

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return float(prompt.reference in answer)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return prompt.reference in answer

    def _hidden(
        self,
        request: CellRequest,
        pairs: Sequence[Pair],
        books: Sequence[Book],
        depth: float,
        rng: np.random.Generator,
    ) -> Prompt:
        pair, book = pairs[int(rng.integers(len(pairs)))], books[int(rng.integers(len(books)))]
        name = pair.characters[int(rng.integers(len(pair.characters)))]
        needle, question = (text.replace("{CHAR}", name) for text in (pair.needle, pair.question))
        place = book.breaks[int(rng.integers(len(book.breaks)))]

        def text(haystack: str) -> str:
            return prompt_text(pair.template, haystack, question)

        ids = self.filled(request, lambda count: text(book.around(place, count, depth, needle)))
        return Prompt(
            ids,
            name,
            depth,
            labels=pair.characters,
            # No two prompts share a text, so the question is only the last token.
            context_tokens=len(ids) - 1,
            cluster=pair.name,
            controls=encoded(request, text(""), text(needle)),
        )


def prompt_text(template: str, haystack: str, question: str) -> str:
    filled = {"haystack": haystack, "question": question}
    # A replacement of both fields at once, because books may contain braces.
    text = re.sub(r"\{(haystack|question)\}", lambda found: filled[found[1]], template)
    return text + ANSWER


def read_pairs(folders: Mapping[str, Path], task: str) -> list[Pair]:
    files = [file for file in _DATA.files(folders) if file.name == _NEEDLES]
    if not files:
        raise _DATA.missing(f"needle set needlesets/{_NEEDLES}")
    pairs = []
    for row in read_rows(files[0], ("id", "needle", "questions", "tests", "character_set")):
        try:
            found = pairs_of(row, task)
        except (KeyError, TypeError, AttributeError) as error:
            raise _malformed(files[0], row, f"{type(error).__name__} {error}") from None
        for pair in found:
            if len(pair.characters) < 2 or "{CHAR}" not in pair.needle:
                wrong = f"{len(pair.characters)} characters for the needle {pair.needle!r}"
                raise _malformed(files[0], row, wrong)
        pairs += found
    if not pairs:
        raise DataError(files[0], f"no question {task}", "needles with one", "get the file again")
    return pairs


def _malformed(file: Path, row: DataRow, got: str) -> DataError:
    return DataError(
        f"{file}: needle {row['id']}",
        got,
        "a needle with {CHAR}, questions, tests with input_args, and at least two characters",
        "use the data set in its published form",
    )


def pairs_of(row: Mapping[str, Any], task: str) -> list[Pair]:
    """Return the tests of one entry of the needle set; {1}, {2}, ... stand for their arguments."""
    if task not in row["questions"]:
        return []
    characters = tuple(row["character_set"])
    found = []
    for name, test in row["tests"].items():
        needle, question = row["needle"], row["questions"][task]
        for number, argument in enumerate(test["input_args"], start=1):
            field = f"{{{number}}}"
            needle, question = needle.replace(field, argument), question.replace(field, argument)
        template = row.get("task_template", FRAME)
        found.append(Pair(f"{row['id']}_{name}_{task}", needle, question, template, characters))
    return found


BENCHMARK = NoLiMa
SOURCE = Source(
    paper="arXiv:2502.05167",
    place="sections 3 and 4; without chain of thought and without distractors",
    reference="github.com/adobe-research/NoLiMa@7532e4eebf095c5540dc256900a63968da58a9d0",
    differs="each prompt draws a needle, a character, a book and a place in it, instead of all"
    " needles in the beginnings of all books; the system prompt is left out; a needle without"
    " `task_template` gets text and question alone, without the reference's instructions around"
    " them; the prompt ends with the beginning of an answer; the length includes the answer's"
    " tokens",
)
EVIDENCE = (
    calls(
        prompt_text,
        "Read: a {b} c. Who? a\n\nAnswer:",
        "by hand",
        template="Read: {haystack} Who? {question}",
        haystack="a {b} c.",
        question="a",
    ),
    *(
        calls(NoLiMa.score_answer, value, origin, **marking("onehop", "Ada", answer))
        for answer, value, origin in (
            (" It was Ada.", 1.0, "the metric `contains` of the reference"),
            (" ada", 0.0, "upper and lower case differ in the reference"),
        )
    ),
)
EXAMPLES: Examples = ({"num_samples": 6},)
VERSION = 1
