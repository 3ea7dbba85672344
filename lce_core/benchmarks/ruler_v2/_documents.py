"""The tasks qa_* on HotpotQA: find documents by their number, or answer a question about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lce_core.benchmarks.ruler._documents import Collection
from lce_core.benchmarks.ruler._drafts import Draft, Draw, Units, percent
from lce_core.benchmarks.ruler_v2._questions import distinct_numbers

_FIND = (
    "Below are some documents. I will give you a {what} at the end. Please find the {target}. Only"
    " give me the index without any document contents."
)
_ANSWER = (
    "Below are some documents. I will ask you to answer a question based on the documents. Please"
    " answer the question."
)


@dataclass(frozen=True)
class Asking:
    """Wording of one task."""

    head: str
    asked: str
    """Text after the documents, with the fields {text} of a document and {question}."""
    answer: Literal["first index", "any index", "answer"]


TASKS = {
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
    """One of the tasks; the size of a prompt is its number of documents of other questions."""

    def __init__(
        self,
        task: Asking,
        collection: Collection,
        chosen: Sequence[int],
        new_tokens: int,
        eval_length: int,
    ) -> None:
        self._task, self._documents = task, collection.documents
        self._questions = [collection.questions[number] for number in chosen]
        self.new_tokens = new_tokens
        own = max(len(question.own) for question in self._questions)
        self.sizes = range(min(max(0, len(self._documents) - own), eval_length) + 1)
        self.units = Units(1, 0, new_tokens, "redrawn smaller", self.sizes[-1], 0)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """Build a prompt whose smallest size has only the documents with supporting facts."""
        question, rng = self._questions[index], draw.rng
        mine = {*question.own}
        others = [number for number in range(len(self._documents)) if number not in mine]
        shown = [*(question.own if size else question.evidence), *rng.sample(others, size)]
        rng.shuffle(shown)
        names = dict(zip(shown, distinct_numbers(len(shown), rng), strict=True))
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
        return Draft(
            text,
            references,
            float(np.mean([percent(shown.index(at), len(shown) - 1) for at in wanted])),
            question.cluster,
            controls=tuple(controls),
        )
