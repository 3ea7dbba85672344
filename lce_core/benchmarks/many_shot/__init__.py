"""Many-shot learning: classify questions by solved examples in the prompt (TREC, 50 classes).

A task is a number k of examples, such as `shots_100`; a cell's length is the maximum length of a
prompt. The examples are the first k questions of a random permutation of the train file, so all
prompts of a permutation share their tokens up to the question. With one seed, all tasks, lengths
and permutations ask the same questions. Only the first line of an answer is scored. An answer that
names n classes scores 1/n if the right one is among them, else 0.

`faithful` removes the middle of prompts that exceed the length, as LCEG does. In the other
profiles, which reserve tokens for the answer, cells with such prompts are unavailable. `tiny`
replaces a question by text and a query token, and a class by a key token.

Intervals: bootstrap over permutations, or over questions if there is only one permutation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from lce_core.benchmarks import (
    CellRequest,
    CellResult,
    Examples,
    Kind,
    Profile,
    Prompt,
    PromptBenchmark,
    Sequences,
    Source,
    blank_prompt,
    calls,
    encode,
    generator,
)
from lce_core.benchmarks._data import DataSet, Seen, fact_of_files
from lce_core.benchmarks._prompted.filling import too_long
from lce_core.benchmarks._prompted.truncation import cut_middle
from lce_core.benchmarks.longbench.metrics import class_share, first_line, has_complete_line
from lce_core.benchmarks.many_shot.demonstrations import (
    TINY_SHOTS,
    ShotForm,
    ShotKeys,
    drawn_order,
    num_shots,
    prompt_text,
)
from lce_core.benchmarks.many_shot.trec import (
    CLASSES,
    NUM_QUESTIONS,
    NUM_REPEATED,
    TREC,
    drawn_questions,
    trec_questions,
)
from lce_core.errors import SpecError
from lce_core.models import LanguageModel

NEW_TOKENS = 64
QUESTION_TOKENS = 21.73
"""Mean Llama tokens of an example (a TREC question with its class), for cost estimates."""


class ManyShot(PromptBenchmark):
    """Many-shot learning: the score is the mean over questions, each asked after k examples."""

    kind: ClassVar[Kind] = "learning"
    forms: ClassVar[Mapping[Profile, ShotForm]] = {
        "faithful": ShotForm(
            "200 questions after one permutation of the examples; long prompts lose their middle,"
            " as in LCEG",
            permutations=1,
        ),
        "clean": ShotForm(
            "200 questions after each of five permutations; prompt and answer must fit"
        ),
        "fast": ShotForm("20 questions after each of five permutations", num_questions=20),
        "tiny": ShotKeys(
            "key tokens instead of questions, for base models with key tokens",
            shots=TINY_SHOTS,
            permutations=10,
            num_questions=12,
        ),
    }
    # The number of examples of a task determines the length of its prompts.
    fills_length: ClassVar[bool] = False
    answer_tokens: ClassVar[int] = NEW_TOKENS

    shots: tuple[PositiveInt, ...] | None = Field(default=None, min_length=1)
    """Numbers of examples, one task each; None means LCEG's 15 numbers from 1 to 1000, or 1, 5, 10
    and 25 in tiny."""
    permutations: int | None = Field(default=None, gt=0)
    """Number of permutations of the examples; None means 1 (faithful), 5 (clean, fast), 10 (tiny).
    """
    num_questions: int | None = Field(default=None, gt=0)
    """Questions per permutation; None means 200 (faithful, clean), 20 (fast), 12 (tiny)."""
    balanced: bool = False
    """True shows examples in rounds with one example of each class. False shows each class as often
    as a random permutation does."""

    @property
    def form(self) -> ShotForm:
        return self.forms[self.profile]

    @model_validator(mode="after")
    def _every_task_has_one_name(self) -> ManyShot:
        if len(set(self._shots())) < len(self._shots()):
            raise SpecError(
                "shots",
                list(self._shots()),
                "distinct numbers, because each is the name of a task",
                "remove repeated numbers",
            )
        return self

    def tasks(self) -> tuple[str, ...]:
        return tuple(f"shots_{shots}" for shots in self._shots())

    def num_prompts(self, task: str) -> int:
        return self.orders() * self.questions()

    def orders(self) -> int:
        return self.permutations or self.form.permutations

    def questions(self) -> int:
        return self.num_questions or self.form.num_questions

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        return min(eval_length, round(expected_tokens(num_shots(task))))

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        """Count the examples of a permutation once; prompts of `tiny` share no computations."""
        if not self.form.in_words:
            return 1.0
        question = min(prompt_tokens, QUESTION_TOKENS)
        each_order = prompt_tokens + (self.questions() - 1) * question
        return each_order / (self.questions() * prompt_tokens)

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (TREC,) if self.form.in_words else ()

    def data_sequences(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> Sequences | None:
        if not self.form.in_words:
            return None
        size = _prompt_bytes(num_shots(task), TREC.seen(data_folders))
        expected = min(eval_length, round(size / base_model.bytes_per_token))
        return Sequences({expected: self.num_prompts(task)})

    def data_samples(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> int | None:
        """Leave out the ten published test questions that are also in the train file."""
        if not self.form.in_words:
            return None
        published = NUM_QUESTIONS["test.txt"]
        number = TREC.num_rows(data_folders, "test.txt", published)
        return self.orders() * (number - NUM_REPEATED if number == published else number)

    def build(self, request: CellRequest) -> list[Prompt]:
        shots = num_shots(request.task)
        rng = generator("many_shot", "questions", request.seed)
        shown, asked = drawn_questions(request.data_folders, shots, self.questions(), rng)
        labels = [question.label for question in shown]
        texts = []
        for order in range(self.orders()):
            # The seed excludes task and length, so that fewer examples are a prefix of more.
            rng = generator("many_shot", "examples", request.seed, order)
            first = [shown[i] for i in drawn_order(labels, shots, rng, balanced=self.balanced)]
            texts += [(prompt_text(first, question.text), question.label) for question in asked]
        return self._encoded(request, texts)

    def _encoded(self, request: CellRequest, texts: list[tuple[str, str]]) -> list[Prompt]:
        if self.profile == "faithful":
            ids = [cut_middle(request, text, request.eval_length) for text, _ in texts]
        else:
            ids = [encode(request, text) for text, _ in texts]
            needed = max(map(len, ids)) + NEW_TOKENS
            if needed > request.eval_length:
                what = f"the longest prompt of {request.task} and its answer"
                raise too_long(request, what, needed, otherwise=" or fewer shots")
        return [
            Prompt(np.array(row, dtype=np.int64), label)
            for row, (_, label) in zip(ids, texts, strict=True)
        ]

    def evaluate(self, request: CellRequest) -> CellResult:
        result = super().evaluate(request)
        # Each seed draws its own permutations and questions: none of them is another seed's.
        samples = (
            replace(sample, cluster=f"seed-{request.seed}-{sample.cluster}")
            for sample in result.samples
        )
        return replace(result, samples=tuple(samples))

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return class_share(first_line(answer), prompt.reference, CLASSES)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return has_complete_line(answer)

    def cluster(self, index: int, prompt: Prompt) -> str:
        """Group the questions that are asked after one permutation."""
        if self.orders() == 1:
            return f"question-{index}"
        return f"order-{index // self.questions()}"

    def _shots(self) -> tuple[int, ...]:
        return self.shots or self.form.shots


def expected_tokens(shots: int) -> float:
    """Return the expected Llama tokens of a prompt with `shots` TREC examples."""
    return 33 + QUESTION_TOKENS * shots


@lru_cache(maxsize=64)
def _prompt_bytes(shots: int, files: Seen) -> float:
    """Return the expected bytes of a prompt: `shots` examples and a question, all of mean size."""
    frame = len(prompt_text((), "").encode())

    def read() -> list[int]:
        shown, asked = trec_questions({TREC.name: Path(files[0][0]).parent})
        examples = len(prompt_text(shown, "").encode()) - frame
        questions = sum(len(one.text.encode()) for one in asked)
        return [examples, len(shown), questions, len(asked)]

    what = f"many_shot {VERSION}: bytes of examples and questions"
    examples, num_shown, questions, num_asked = fact_of_files(what, files, read)
    return frame + questions / num_asked + shots * examples / num_shown


BENCHMARK = ManyShot
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="Figure 2 and Table 1 (Mshots); balanced rounds: arXiv:2410.02694",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="LCEG did not publish its random examples: here they are the first k of a seeded"
    " permutation. The ten test questions that are also in the train file are left out",
)
EVIDENCE = (
    *(
        calls(
            ManyShot.score_answer,
            score,
            origin,
            parameters={},
            task="shots_1",
            prompt=blank_prompt(reference),
            answer=answer,
        )
        for reference, answer, score, origin in (
            ("Other number", " Other number", 1.0, "LongBench's rule, the gold name alone"),
            (
                "City",
                " Description of a person or Definition of something or City\nDate",
                1 / 3,
                "LongBench's rule: one over the number of classes named in the first line",
            ),
            ("City", " Date", 0.0, "LongBench's rule: another class"),
        )
    ),
    *(
        calls(
            expected_tokens,
            tokens,
            "counted with Llama's tokenizer, mean of 30 orders (8 of 1000 examples), rounded",
            tolerance=0.01,
            shots=shots,
        )
        for shots, tokens in ((1, 55), (10, 251), (100, 2212), (1000, 21_762))
    ),
)
EXAMPLES: Examples = ({"shots": (5,), "permutations": 2, "num_questions": 4},)
VERSION = 2
