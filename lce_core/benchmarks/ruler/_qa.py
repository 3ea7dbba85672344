"""Question answering (qa_1 on SQuAD, qa_2 on HotpotQA) over its documents and others."""

from __future__ import annotations

import numpy as np

from lce_core.benchmarks.ruler._documents import Collection, Question
from lce_core.benchmarks.ruler._drafts import Draft, Draw, percent

PROMPT = (
    "Answer the question based on the given documents. Only give me the answer and do not output"
    " any other words.\n\nThe following are given documents.\n\n{context}\n\nAnswer the question"
    " based on the given documents. Only give me the answer and do not output any other words.\n\n"
    "Question: {question} Answer:"
)
UNIT = 10


class QuestionAnswering:
    """Sizes are documents.

    Args:
      collection: documents and questions.
      asked: numbers of the questions, one for each sample.
      eval_length: tokens of context.
      units: whether sizes go by tens of documents or one by one.
    """

    new_tokens = reserved = 32

    def __init__(
        self, collection: Collection, asked: list[int], eval_length: int, *, units: bool
    ) -> None:
        self._documents = collection.documents
        self._questions = [collection.questions[number] for number in asked]
        smallest = max(len(question.own) for question in self._questions)
        most = max(smallest, min(len(self._documents), eval_length))
        first, step = (max(UNIT, smallest), UNIT) if units else (smallest, 1)
        # Where units overshoot the documents, all of them are the last size, as in RULER.
        self.sizes = range(first, most + step, step)

    def draft(self, size: int, draw: Draw) -> Draft:
        """A prompt with `size` documents: the question's own, related ones, then any others."""
        question = self._questions[draw.index]
        shown = self._chosen(question, size, draw.rng)
        order = [shown[place] for place in draw.order.permutation(len(shown))]
        context = "\n\n".join(
            f"Document {number}:\n{self._documents[document]}"
            for number, document in enumerate(order, start=1)
        )
        depths = [percent(order.index(number), len(order) - 1) for number in question.evidence]
        return Draft(
            PROMPT.format(context=context, question=question.text),
            question.answers,
            float(np.mean(depths)),
            question.cluster,
        )

    def _chosen(self, question: Question, size: int, rng: np.random.Generator) -> list[int]:
        related = rng.permutation(np.array(question.related, dtype=np.int64)).tolist()
        first = [*question.own, *related]
        if len(first) < size:
            others = np.setdiff1d(np.arange(len(self._documents)), first)
            first += rng.permutation(others)[: size - len(first)].tolist()
        return first[:size]
