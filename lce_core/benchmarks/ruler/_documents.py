"""Question answering (qa_1 on SQuAD, qa_2 on HotpotQA) over relevant and other documents.

SQuAD, XQuAD and HotpotQA are read from the authors' JSON, or rows of the hub (.jsonl files).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lce_core.benchmarks import DataRow, DataSet, Table, read_rows
from lce_core.benchmarks.ruler._drafts import Draft, Draw, Units, percent
from lce_core.errors import DataError

SQUAD = DataSet(
    "squad",
    ("dev-v2.0.json",),
    "rajpurkar.github.io/SQuAD-explorer (dev-v2.0.json)",
    (Table(split="validation"),),
)
XQUAD = DataSet(
    "xquad",
    ("xquad.en.json",),
    "github.com/google-deepmind/xquad (xquad.en.json)",
    (Table("xquad.en", "validation"),),
)
HOTPOT = DataSet(
    "hotpotqa",
    ("hotpot_dev_distractor*.json",),
    "hotpotqa.github.io (hotpot_dev_distractor_v1.json)",
    (Table("distractor", "validation"),),
)
NUM_QUESTIONS = {"squad": 5928, "xquad": 1190, "hotpotqa": 7405}
"""Number of answerable questions in each published file."""
PROMPT = (
    "Answer the question based on the given documents. Only give me the answer and do not output"
    " any other words.\n\nThe following are given documents.\n\n{context}\n\nAnswer the question"
    " based on the given documents. Only give me the answer and do not output any other words.\n\n"
    "Question: {question} Answer:"
)


@dataclass(frozen=True)
class Question:
    """A question, with indices into `Collection.documents` of the documents about it."""

    text: str
    answers: tuple[str, ...]
    own: tuple[int, ...]
    """Indices of the documents in every prompt with this question."""
    related: tuple[int, ...]
    """Indices of the other documents of the same article, which longer prompts contain first."""
    evidence: tuple[int, ...]
    """Indices of the documents with the answer (SQuAD) or the supporting facts (HotpotQA), whose
    mean position is the prompt's depth."""
    cluster: str
    """Title of the article (SQuAD) or of the first paragraph with evidence (HotpotQA). Questions
    with equal titles count as dependent samples."""


@dataclass(frozen=True)
class Collection:
    """A data set: its distinct documents, sorted, and its questions in file order."""

    documents: tuple[str, ...]
    questions: tuple[Question, ...]


class QuestionAnswering:
    """Question answering; the size of a prompt is its number of documents."""

    new_tokens = 32

    def __init__(self, collection: Collection, chosen: list[int], eval_length: int) -> None:
        self._documents = collection.documents
        self._questions = [collection.questions[number] for number in chosen]
        least, most = max(len(one.own) for one in self._questions), len(self._documents)
        self.sizes = range(least, max(least, min(most, eval_length)) + 1)
        self.units = Units(10, 10, self.new_tokens, "redrawn smaller", most, least)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        question = self._questions[index]
        shown = self._chosen(question, size, draw)
        draw.shuffle(shown)
        text, *controls = (
            PROMPT.format(context=self._listed(some), question=question.text)
            for some in (shown, (), question.evidence)
        )
        depths = [percent(shown.index(number), len(shown) - 1) for number in question.evidence]
        references, stated = tuple(dict.fromkeys(question.answers)), f" {list(question.answers)}"
        depth = float(np.mean(depths))
        return Draft(text, references, depth, question.cluster, stated, controls=controls)

    def _listed(self, documents: Sequence[int]) -> str:
        return "\n\n".join(
            f"Document {number}:\n{self._documents[document]}"
            for number, document in enumerate(documents, start=1)
        )

    def _chosen(self, question: Question, size: int, draw: Draw) -> list[int]:
        if size >= len(self._documents):
            return list(range(len(self._documents)))
        own, related = list(question.own), list(question.related)
        missing = size - len(own)
        if missing <= len(related):
            return own + draw.rng.sample(related, missing)
        mine = {*own, *related}
        others = [number for number in range(len(self._documents)) if number not in mine]
        return own + related + draw.rng.sample(others, missing - len(related))


def read_squad(folders: Mapping[str, Path], data_set: DataSet = SQUAD) -> Collection:
    """Read the answerable questions of SQuAD or XQuAD; each document is a paragraph."""
    columns = ("title", "context", "question", "answers")
    return _read(
        data_set, folders, {".jsonl": (columns, _squad_rows), ".json": (("data",), _squad)}
    )


def read_hotpot(folders: Mapping[str, Path]) -> Collection:
    """Read all questions of HotpotQA; each document is a paragraph below its title."""
    columns = ("question", "answer", "context", "supporting_facts")
    return _read(HOTPOT, folders, {".jsonl": (columns, _hotpot_rows), ".json": (columns, _hotpot)})


def _squad_rows(rows: list[DataRow]) -> Collection:
    articles: dict[str, dict[str, list[DataRow]]] = {}
    for row in rows:
        answers = [{"text": text} for text in row["answers"]["text"]]
        questions = articles.setdefault(row["title"], {}).setdefault(row["context"], [])
        questions.append({"question": row["question"], "answers": answers})
    nested = [
        {
            "title": title,
            "paragraphs": [{"context": text, "qas": asked} for text, asked in paragraphs.items()],
        }
        for title, paragraphs in articles.items()
    ]
    return _squad([{"data": nested}])


def _hotpot_rows(rows: list[DataRow]) -> Collection:
    pairs = (("context", "sentences"), ("supporting_facts", "sent_id"))
    return _hotpot(
        [
            row
            | {
                key: list(zip(row[key]["title"], row[key][other], strict=True))
                for key, other in pairs
            }
            for row in rows
        ]
    )


def _squad(rows: list[DataRow]) -> Collection:
    articles = [article for row in rows for article in row["data"]]
    documents = sorted({part["context"] for article in articles for part in article["paragraphs"]})
    numbers = {document: number for number, document in enumerate(documents)}
    questions = []
    for article in articles:
        mine = [numbers[part["context"]] for part in article["paragraphs"]]
        for part in article["paragraphs"]:
            own = numbers[part["context"]]
            related = tuple(dict.fromkeys(number for number in mine if number != own))
            for question in part["qas"]:
                answers = tuple(answer["text"] for answer in question["answers"])
                if answers and not question.get("is_impossible", False):
                    text, title = question["question"], article["title"]
                    questions.append(Question(text, answers, (own,), related, (own,), title))
    return Collection(tuple(documents), tuple(questions))


def _hotpot(rows: list[DataRow]) -> Collection:
    documents = sorted({_titled(*part) for row in rows for part in row["context"]})
    numbers = {document: number for number, document in enumerate(documents)}
    questions = []
    for row in rows:
        named = {title: numbers[_titled(title, lines)] for title, lines in row["context"]}
        titles = [title for title, _ in row["supporting_facts"] if title in named]
        own = tuple(dict.fromkeys(named.values()))
        evidence = tuple(dict.fromkeys(named[title] for title in titles))
        answers = (row["answer"],)
        questions.append(Question(row["question"], answers, own, (), evidence, titles[0]))
    return Collection(tuple(documents), tuple(questions))


def _titled(title: str, lines: list[str]) -> str:
    return f"{title}\n{''.join(lines)}"


def _read(
    data_set: DataSet,
    folders: Mapping[str, Path],
    readers: Mapping[str, tuple[Sequence[str], Callable[[list[DataRow]], Collection]]],
) -> Collection:
    """Read a data set by the columns and the function for its file's suffix."""
    file = data_set.files(folders)[0]
    columns, read = readers[file.suffix]
    rows = list(read_rows(file, columns))
    try:
        found = read(rows)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise DataError(
            file,
            f"{type(error).__name__} {error} while reading its questions",
            "questions in the data set's published format",
            "get the file again",
        ) from None
    if not found.questions:
        raise DataError(
            file, "no question with an answer", "questions with answers", "get the file again"
        )
    data_set.require_rows(folders, file.name, len(found.questions), NUM_QUESTIONS[data_set.name])
    return found
