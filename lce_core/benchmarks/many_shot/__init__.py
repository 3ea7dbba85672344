"""Many-shot learning: classify questions by examples in the context (TREC, 50 classes).

A task is a number of examples; the length is the context they must fit in. Per permutation the
examples are the first k of one random order of the train file, so fewer examples are a beginning of
more, and all questions share them: their prompts have the same tokens up to the question. The
questions are the same for every task, length and permutation of a seed. The first line of an answer
counts; naming several classes shares the point among them.

`faithful` asks 200 questions after one permutation and cuts the middle of prompts that exceed the
length, as LCEG does. `clean` asks them after five permutations and keeps room for the answer; what
does not fit is unavailable. `fast` asks 20 questions after each of the five.

Token form (profile `tiny`, for base models with key tokens): text, the query of a family and the
key it stands for, k times over the whole length; then text and a query.

Intervals: bootstrap over permutations, or over questions where there is one permutation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from lce_core.benchmarks import Benchmark, CellRequest, CellResult, Profile, Sample, score
from lce_core.benchmarks._data import DataSet, Seen
from lce_core.benchmarks._prompted.cache import cell_prompts
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    encode,
    generator,
    key_samples,
    key_task_reason,
    text_answers,
)
from lce_core.benchmarks._prompted.truncation import cut_middle
from lce_core.benchmarks.longbench.metrics import class_share, first_line, has_complete_line
from lce_core.benchmarks.many_shot.demonstrations import (
    drawn_order,
    key_demonstrations,
    prompt_text,
)
from lce_core.benchmarks.many_shot.trec import CLASSES, TREC, drawn_questions, trec_questions
from lce_core.data.sequences import Sequences
from lce_core.errors import UnavailableError
from lce_core.evaluation.stats import bootstrap_mean
from lce_core.evidence import calls
from lce_core.models import LanguageModel
from lce_core.registry import Source

SHOTS = (1, 5, 10, 25, 50, 75, 100, 200, 300, 400, 500, 625, 750, 875, 1000)
TINY_SHOTS = (1, 5, 10, 25)
NEW_TOKENS = 64
_PERMUTATIONS = {"faithful": 1, "clean": 5, "fast": 5, "tiny": 10}
_QUESTIONS = {"faithful": 200, "clean": 200, "fast": 20, "tiny": 12}


class ManyShot(Benchmark):
    """Mean classification score after k examples."""

    unit: ClassVar[Literal["accuracy"]] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    forms: ClassVar[Mapping[Profile, str]] = {
        "faithful": "200 questions after one order of the examples, the middle of long prompts cut,"
        " as LCEG does",
        "clean": "200 questions after each of five orders, room for the answer",
        "fast": "20 questions after each of five orders",
        "tiny": "key tokens instead of questions, for base models that have them",
    }

    shots: tuple[PositiveInt, ...] | None = Field(default=None, min_length=1)
    """Numbers of examples, each a task; None: LCEG's 15 from 1 to 1000, in profile tiny 1 to 25."""
    permutations: int | None = Field(default=None, gt=0)
    """Orders of the examples; None: 1 (faithful), 5 (clean, fast), 10 (tiny)."""
    num_questions: int | None = Field(default=None, gt=0)
    """Questions after each; None: 200 (faithful, clean), 20 (fast), 12 (tiny)."""
    balanced: bool = False
    """Examples in rounds with one of each class instead of as often as they are."""

    @model_validator(mode="after")
    def _every_task_has_one_name(self) -> ManyShot:
        if len(set(self._shots())) < len(self._shots()):
            raise ValueError(f"shots {list(self._shots())} name a task twice")
        return self

    def tasks(self) -> tuple[str, ...]:
        """One for each number of examples."""
        return tuple(f"shots_{shots}" for shots in self._shots())

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """A tiny cell without key tokens or without room."""
        if self.profile != "tiny":
            return None
        minimum = 3 * _num_shots(task) + 3
        if base_model.keys is not None and eval_length < minimum:
            return (
                f"eval_length {eval_length}: {task} needs at least {minimum} tokens (query, key and"
                " a token of text for each example, and the question)"
            )
        return key_task_reason(base_model, 0, max(eval_length, minimum))

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """The questions' digest, where natural questions are asked."""
        return () if self.profile == "tiny" else (TREC,)

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Prompts times their length in Llama's tokens, or the cell's where that is shorter."""
        expected = round(expected_tokens(_num_shots(task)))
        length = eval_length if self.profile == "tiny" else min(eval_length, expected)
        return self._permutations() * self._num_questions() * length

    def data_sequences(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> Sequences | None:
        """Prompts of examples and questions of mean length, estimated from their bytes."""
        if self.profile == "tiny":
            return None
        size = _prompt_bytes(_num_shots(task), TREC.seen(data_folders))
        expected = min(eval_length, round(size / base_model.bytes_per_token))
        return Sequences({expected: self._permutations() * self._num_questions()})

    def evaluate(self, request: CellRequest) -> CellResult:
        """Asks all questions after each order of the examples."""
        prompts = self.prompts(request)
        samples = (
            key_samples(request, prompts)
            if self.profile == "tiny"
            else text_samples(
                prompts,
                text_answers(
                    request, prompts, max_new_tokens=NEW_TOKENS, complete=has_complete_line
                ),
            )
        )
        samples = self._clustered(samples)
        mean = bootstrap_mean(
            [sample.score for sample in samples], clusters=[sample.cluster for sample in samples]
        )
        return CellResult(
            scores=(score("accuracy", mean, higher_is_better=True),),
            samples=samples,
            sequences=Sequences.of(sample.num_prompt_tokens for sample in samples),
        )

    def prompts(self, request: CellRequest) -> tuple[Prompt, ...]:
        """All prompts of the cell, permutation by permutation.

        Raises:
          UnavailableError: no data, too few questions, or a prompt that does not fit; says the
            minimum.
          DataError: data that is not as published; names file and line.
        """
        return cell_prompts(self, request, lambda: self._built(request), Prompt)

    def _built(self, request: CellRequest) -> list[Prompt]:
        shots, orders = _num_shots(request.task), range(self._permutations())
        if self.profile == "tiny":
            place = ("many_shot", request.task, request.eval_length, request.seed)
            return [
                prompt
                for order in orders
                for prompt in key_demonstrations(
                    request,
                    shots,
                    [generator(*place, order, index) for index in range(self._num_questions())],
                    generator(*place, order),
                    balanced=self.balanced,
                )
            ]
        rng = generator("many_shot", "questions", request.seed)
        shown, asked = drawn_questions(request.data_folders, shots, self._num_questions(), rng)
        labels = [question.label for question in shown]
        texts = []
        for order in orders:
            # Neither task nor length decides: fewer examples are a beginning of more.
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
                raise UnavailableError(
                    f"eval_length {request.eval_length}: the longest prompt of {request.task} and"
                    f" its answer need {needed} tokens of this tokenizer. Evaluate longer contexts"
                    " or fewer shots."
                )
        return [
            Prompt(np.array(row, dtype=np.int64), label)
            for row, (_, label) in zip(ids, texts, strict=True)
        ]

    def _clustered(self, samples: tuple[Sample, ...]) -> tuple[Sample, ...]:
        one = self._permutations() == 1
        return tuple(
            replace(
                sample,
                cluster=f"question-{index}" if one else f"order-{index // self._num_questions()}",
            )
            for index, sample in enumerate(samples)
        )

    def _shots(self) -> tuple[int, ...]:
        return self.shots or (TINY_SHOTS if self.profile == "tiny" else SHOTS)

    def _permutations(self) -> int:
        return self.permutations or _PERMUTATIONS[self.profile]

    def _num_questions(self) -> int:
        return self.num_questions or _QUESTIONS[self.profile]


def expected_tokens(shots: int) -> float:
    """Prompt tokens after that many examples, with Llama's tokenizer; the constant is a guess."""
    return 36 + 23.8 * shots


def text_samples(prompts: Sequence[Prompt], answers: list[str]) -> tuple[Sample, ...]:
    """Scores continuations by LongBench's classification score of their first line."""
    return tuple(
        Sample(
            index,
            len(prompt.ids),
            class_share(first_line(answer), prompt.reference, CLASSES),
            prediction=answer,
            reference=prompt.reference,
        )
        for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    )


@lru_cache(maxsize=64)
def _prompt_bytes(shots: int, files: Seen) -> float:
    """Bytes of a prompt with so many examples, mean over all examples and questions."""
    shown, asked = trec_questions({TREC.name: Path(files[0][0]).parent})
    frame = len(prompt_text((), "").encode())
    examples = len(prompt_text(shown, "").encode()) - frame
    questions = sum(len(one.text.encode()) for one in asked)
    return frame + questions / len(asked) + shots * examples / len(shown)


def _num_shots(task: str) -> int:
    return int(task.removeprefix("shots_"))


BENCHMARK = ManyShot
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="Figure 2 and Table 1 (Mshots); balanced rounds: arXiv:2410.02694",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="LCEG's draws are not published: examples are the first k of a seeded permutation, and"
    " the ten test questions that are also in the train file are not asked",
)
EVIDENCE = (
    calls(
        expected_tokens,
        23836.0,
        "23.8 an example counted with Llama's tokenizer; 36 for the rest estimated",
        shots=1000,
    ),
    calls(
        class_share,
        1.0,
        "LongBench's rule, the gold name alone",
        prediction=" Other number",
        reference="Other number",
        classes=CLASSES,
    ),
    calls(
        class_share,
        1 / 3,
        "LongBench's rule: one over the number of classes named",
        prediction=" Description of a person or Definition of something or City",
        reference="City",
        classes=CLASSES,
    ),
)
VERSION = 1
