"""BABILong: simple facts scattered in a long text, and questions that need one to three of them.

The tasks have the form of bAbI's tasks 1 to 5: one, two and three supporting facts, relations of
two arguments and of three. The sentences of a story are inserted at random positions of held-out
text, in their order. Questions about one story share the forward pass over its text.

`accuracy` follows BABILong's rule: the first sentence of the answer names the right label and no
other, apart from labels that the question names. `choice` and `margin` are those of
`PromptBenchmark`. Intervals resample stories.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from lce_core.benchmarks import (
    MIN_TEXT,
    CellRequest,
    Examples,
    Profile,
    Prompt,
    PromptBenchmark,
    Source,
    Stream,
    calls,
    encode,
    generator,
    long_streams,
    passed_share,
    random_slice,
    token_ids,
    too_long,
)
from lce_core.benchmarks.babilong.stories import LABELS, Question, story

NEW_TOKENS = 20
"""Maximum tokens of an answer, as in BABILong's runs of base models."""
QUESTION_TOKENS = 30
"""Approximate tokens that pass through the model for one question and its labels, for costs."""
_RULES = (
    "Answer the question about persons, places and things with one word, from the facts in the text"
    " below. The latest fact holds."
)
_EXAMPLES = {
    "qa1": ("Ann went to the cellar. Bob went to the attic. Where is Ann?", "cellar"),
    "qa2": ("Ann went to the cellar. Ann took the lamp. Where is the lamp?", "cellar"),
    "qa3": (
        "Ann went to the cellar. Ann took the lamp. Ann went to the attic. Where was the lamp"
        " before the attic?",
        "cellar",
    ),
    "qa4": ("The cellar is east of the attic. What is east of the attic?", "cellar"),
    "qa5": ("Ann gave the lamp to Bob. Who gave the lamp to Bob?", "Ann"),
}


class BabiLong(PromptBenchmark):
    """Reasoning over facts in a long text: the score is the fraction of right answers."""

    kind = "reasoning"
    profiles = {
        "clean": Profile("100 stories in held-out text", num_stories=100),
        "fast": Profile("20 stories in held-out text", num_stories=20),
    }
    answer_tokens = NEW_TOKENS

    num_stories: int | None = Field(default=None, gt=0)
    """Stories per task; None means 100 (clean), 20 (fast)."""
    max_facts: int = Field(default=20, ge=8)
    """Maximum number of sentences in a story; stories have at least half as many,
    except those of qa4, which have two."""
    num_questions: int = Field(default=2, gt=0, le=2)
    """Questions per story."""

    def tasks(self) -> tuple[str, ...]:
        return tuple(LABELS)

    def stories(self) -> int:
        return int(self.setting("num_stories"))

    def num_prompts(self, task: str) -> int:
        return self.stories() * self.num_questions

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        return self.stories()

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        return passed_share(self.num_questions, QUESTION_TOKENS, prompt_tokens)

    def reads_held_out(self, task: str) -> bool:
        return True

    def draws(self, request: CellRequest) -> list[np.random.Generator]:
        place = (self.plugin_name, request.task, request.eval_length, request.seed)
        return [generator(*place, index) for index in range(self.stories())]

    def build(self, request: CellRequest) -> list[Prompt]:
        streams = long_streams(request, request.eval_length)
        return [
            prompt
            for number, rng in enumerate(self.draws(request))
            for prompt in self._about(
                request, f"story-{number}", random_slice(streams, request.eval_length, rng), rng
            )
        ]

    def _about(
        self, request: CellRequest, cluster: str, text: Stream, rng: np.random.Generator
    ) -> list[Prompt]:
        task = request.task
        sentences, questions = story(task, self.max_facts, self.num_questions, rng)
        facts = [token_ids(request, f"\n{sentence}\n") for sentence in sentences]
        head = np.array(encode(request, prompt_head(task)), dtype=np.int64)
        asked = [token_ids(request, question_text(one.text)) for one in questions]
        spent = len(head) + sum(map(len, facts)) + max(map(len, asked)) + NEW_TOKENS
        room = request.eval_length - spent
        if room < MIN_TEXT:
            raise too_long(request, "a story, a question and its answer", spent + MIN_TEXT)
        cuts = np.sort(rng.integers(room + 1, size=len(facts)))
        parts = np.split(text[:room].astype(np.int64), cuts)
        pieces = [piece for pair in zip(parts, facts, strict=False) for piece in pair]
        context = np.concatenate([head, *pieces, parts[-1]])
        return [
            Prompt(
                np.concatenate([context, ids]),
                one.answer,
                float(100 * cuts[sentences.index(one.evidence)] / room),
                evidence=one.evidence,
                labels=labels(task, one),
                context_tokens=len(context),
                cluster=cluster,
                controls=tuple(
                    tuple(np.concatenate([head, *shown, ids]).tolist()) for shown in ((), facts)
                ),
            )
            for one, ids in zip(questions, asked, strict=True)
        ]

    def slack_tokens(self, request: CellRequest) -> int:
        """Return 8 tokens: a text leaves room for its longest question, others are shorter."""
        return 8

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return only_label(answer, prompt.reference, prompt.labels or LABELS[task])

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return "." in answer


def labels(task: str, question: Question) -> tuple[str, ...]:
    """Return the labels that can answer a question: those of the task that it does not name."""
    named = question.text.lower()
    return tuple(label for label in LABELS[task] if label.lower() not in named)


def only_label(answer: str, reference: str, possible: Sequence[str]) -> float:
    """Return 1 if the answer's first sentence contains the reference and no other possible label.

    Case is ignored. A label counts even within a word. The text after "<context>" or "<example>",
    with which a model begins another example, is ignored. Source: compare_answers in
    babilong/metrics.py of github.com/booydar/babilong@7a6efee.
    """
    sentence = answer.lower().split(".")[0].split("<context>")[0].split("<example>")[0]
    found = {label for label in possible if label.lower() in sentence}
    return float(found == {reference})


def prompt_head(task: str) -> str:
    asked, answer = _EXAMPLES[task]
    return f"{_RULES}\n\n<example>\n{asked}\nAnswer: {answer}.\n</example>\n\n<context>\n"


def question_text(question: str) -> str:
    return f"\n</context>\n\nQuestion: {question}\nAnswer:"


BENCHMARK = BabiLong
SOURCE = Source(
    paper="arXiv:2406.10149",
    place="section 2, tasks qa1 to qa5; stories: arXiv:1502.05698, tasks 1 to 5",
    reference="github.com/booydar/babilong@7a6efee29f5cac03c3c410e6799c80fd2ffe3610",
    differs="stories, instructions and examples are made here; the text is the study's held-out"
    " text; several questions about one story share its text; answers are single words; the"
    " length includes the answer's tokens; generation stops after the first sentence",
)
EVIDENCE = tuple(
    calls(only_label, expected, origin, answer=answer, reference=reference, possible=possible)
    for answer, reference, possible, expected, origin in (
        (" The office.", "office", ("garden", "office"), 1.0, "compare_answers by hand"),
        (" OFFICE. Or garden.", "office", ("garden", "office"), 1.0, "only the first sentence"),
        (" office or garden", "office", ("garden", "office"), 0.0, "two labels"),
        (" garden", "office", ("garden", "office"), 0.0, "another label"),
        (" mary<example> fred", "Mary", ("Fred", "Mary"), 1.0, "text after the tag is ignored"),
        ("", "office", ("garden", "office"), 0.0, "no label"),
    )
)
EXAMPLES: Examples = ({"num_stories": 2, "max_facts": 10},)
VERSION = 1
