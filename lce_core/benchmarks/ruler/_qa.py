"""Question answering (qa_1 on SQuAD, qa_2 on HotpotQA) over relevant and other documents."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lce_core.benchmarks.ruler._documents import Collection, Question
from lce_core.benchmarks.ruler._drafts import Draft, Draw, Units, percent

PROMPT = (
    "Answer the question based on the given documents. Only give me the answer and do not output"
    " any other words.\n\nThe following are given documents.\n\n{context}\n\nAnswer the question"
    " based on the given documents. Only give me the answer and do not output any other words.\n\n"
    "Question: {question} Answer:"
)


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
        """Take the question's own documents, related ones, then others."""
        question = self._questions[index]
        shown = self._chosen(question, size, draw)
        draw.shuffle(shown)
        text, *controls = (
            PROMPT.format(context=self._listed(some), question=question.text)
            for some in (shown, (), question.evidence)
        )
        depths = [percent(shown.index(number), len(shown) - 1) for number in question.evidence]
        return Draft(
            text,
            tuple(dict.fromkeys(question.answers)),
            float(np.mean(depths)),
            question.cluster,
            f" {list(question.answers)}",
            controls=tuple(controls),
        )

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
