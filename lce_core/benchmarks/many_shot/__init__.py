"""Many-shot learning: classify questions by solved examples in the prompt (TREC, 50 classes).

A task is a number k of examples, such as `shots_100`; a cell's length is the maximum length of a
prompt. The examples are the first k questions of a random permutation of the train file, so all
prompts of a permutation share their tokens up to the question. With one seed, all tasks, lengths
and permutations ask the same questions. Only the first line of an answer is scored. An answer that
names n classes scores 1/n if the right one is among them, else 0.

Intervals: bootstrap over permutations, or over questions if there is only one permutation.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from lce_core.benchmarks import (
    CellData,
    CellRequest,
    DataSet,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    PromptBenchmark,
    Sequences,
    Source,
    calls,
    cut_middle,
    encode,
    encoded,
    generator,
    keys_of,
    long_streams,
    marking,
    passed_share,
    random_slice,
    token_name,
    too_long,
)
from lce_core.benchmarks.longbench.tasks import (
    QUESTION_TYPE,
    class_share,
    first_line,
    has_complete_line,
)
from lce_core.benchmarks.many_shot.trec import (
    CLASSES,
    NUM_QUESTIONS,
    NUM_REPEATED,
    TREC,
    Question,
    drawn_questions,
    trec_questions,
)
from lce_core.errors import SpecError
from lce_core.models import LanguageModel

NEW_TOKENS = 64
QUESTION_TOKENS = 21.73
"""Mean Llama tokens of an example (a TREC question with its class), for cost estimates."""
_DRAWN: dict[str, Any] = {
    "shots": (1, 5, 10, 25, 50, 75, 100, 200, 300, 400, 500, 625, 750, 875, 1000),
    "permutations": 5,
    "num_questions": 200,
}
"""Defaults of prompts in words; the numbers of examples are those of LCEG's evaluation."""


class ManyShot(PromptBenchmark):
    """Many-shot learning: the score is the mean over questions, each asked after k examples."""

    kind = "learning"
    profiles = {
        "faithful": Profile(
            "200 questions after one permutation of the examples; long prompts lose their middle,"
            " as in LCEG",
            **_DRAWN | {"permutations": 1},
        ),
        "clean": Profile(
            "200 questions after each of five permutations; prompt and answer must fit", **_DRAWN
        ),
        "fast": Profile(
            "20 questions after each of five permutations", **_DRAWN | {"num_questions": 20}
        ),
        "tiny": Profile(
            "key tokens instead of questions, for base models with key tokens",
            shots=(1, 5, 10, 25),
            permutations=10,
            num_questions=12,
            keys=KeyTask(),
        ),
    }
    # The number of examples of a task determines the length of its prompts.
    fills_length = False
    answer_tokens = NEW_TOKENS

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

    @model_validator(mode="after")
    def _every_task_has_one_name(self) -> Self:
        shots = self.setting("shots")
        if len(set(shots)) < len(shots):
            raise SpecError(
                "shots",
                list(shots),
                "distinct numbers, because each is the name of a task",
                "remove repeated numbers",
            )
        return self

    def tasks(self) -> tuple[str, ...]:
        return tuple(f"shots_{shots}" for shots in self.setting("shots"))

    def num_prompts(self, task: str) -> int:
        return self.orders() * self.questions()

    def orders(self) -> int:
        return int(self.setting("permutations"))

    def questions(self) -> int:
        return int(self.setting("num_questions"))

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        return min(eval_length, round(expected_tokens(num_shots(task))))

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        if not self.in_words:
            return 1.0
        return passed_share(self.questions(), QUESTION_TOKENS, prompt_tokens)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        minimum = 3 * num_shots(task) + 3
        if self.in_words:
            return None
        if base_model.keys is not None and eval_length < minimum:
            return (
                f"eval_length {eval_length}: {task} needs at least {minimum} tokens (query, key and"
                " a token of text for each example, and the question)"
            )
        return KeyTask().unavailable(base_model, max(eval_length, minimum))

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        return 0 if self.in_words else eval_length - 2 - 2 * num_shots(task)

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (TREC,) if self.in_words else ()

    def data_sequences(self, cell: CellData) -> Sequences | None:
        if not self.in_words:
            return None
        frame = len(prompt_text((), "").encode())

        def read() -> list[int]:
            shown, asked = trec_questions(cell.data_folders)
            examples = len(prompt_text(shown, "").encode()) - frame
            questions = sum(len(one.text.encode()) for one in asked)
            return [examples, len(shown), questions, len(asked)]

        what = f"many_shot {VERSION}: bytes of examples and questions"
        examples, num_shown, questions, num_asked = TREC.fact(what, cell.data_folders, read)
        size = frame + questions / num_asked + num_shots(cell.task) * examples / num_shown
        expected = min(cell.eval_length, round(size / cell.base_model.bytes_per_token))
        return Sequences({expected: self.num_prompts(cell.task)})

    def data_samples(self, cell: CellData) -> int | None:
        if not self.in_words:
            return None
        published = NUM_QUESTIONS["test.txt"]
        number = TREC.num_rows(cell.data_folders, "test.txt", published)
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
            texts += [(prompt_text(first, one.text), one) for one in asked]
        whole = ids = [encode(request, text) for text, _ in texts]
        needed = max(map(len, whole)) + NEW_TOKENS
        if self.profile == "faithful":
            ids = [cut_middle(request, text, request.eval_length) for text, _ in texts]
        elif needed > request.eval_length:
            what = f"the longest prompt of {request.task} and its answer"
            raise too_long(request, what, needed, otherwise=" or fewer shots")
        return [
            Prompt(
                np.array(row, dtype=np.int64),
                one.label,
                cluster=self._cluster(request, index),
                controls=encoded(request, prompt_text((), one.text)),
                is_cut=row != all_ids,
            )
            for index, (row, all_ids, (_, one)) in enumerate(zip(ids, whole, texts, strict=True))
        ]

    def key_prompts(self, request: CellRequest, task: KeyTask) -> list[Prompt]:
        place = ("many_shot", request.task, request.eval_length, request.seed)
        prompts = list[Prompt]()
        for order in range(self.orders()):
            draws = [generator(*place, order, index) for index in range(self.questions())]
            rng = generator(*place, order)
            prompts += key_demonstrations(request, draws, rng, balanced=self.balanced)
        return [
            replace(prompt, cluster=self._cluster(request, index))
            for index, prompt in enumerate(prompts)
        ]

    def _cluster(self, request: CellRequest, index: int) -> str:
        alone = self.orders() == 1
        group = f"question-{index}" if alone else f"order-{index // self.questions()}"
        return f"seed-{request.seed}-{group}"

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return class_share(first_line(answer), prompt.reference, CLASSES)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return has_complete_line(answer)


def expected_tokens(shots: int) -> float:
    return 33 + QUESTION_TOKENS * shots


def num_shots(task: str) -> int:
    return int(task.removeprefix("shots_"))


def drawn_order(
    labels: Sequence[Hashable], count: int, rng: np.random.Generator, *, balanced: bool
) -> list[int]:
    """Draw `count` examples, given their classes, and return indices in the prompt's order.

    With an equal random generator, a smaller `count` returns the first indices of a larger one.
    Unless `balanced`, they are the start of a random permutation of all examples. Balanced draws
    have rounds of one example of each class, shuffled; a class with few examples repeats them.
    """
    if not balanced:
        return [int(index) for index in rng.permutation(len(labels))[:count]]
    members: dict[Hashable, list[int]] = {}
    for index, label in enumerate(labels):
        members.setdefault(label, []).append(index)
    shuffled = [[int(one) for one in rng.permutation(group)] for group in members.values()]
    order: list[int] = []
    for turn in range(-(-count // len(shuffled))):
        order += [
            shuffled[one][turn % len(shuffled[one])] for one in rng.permutation(len(shuffled))
        ]
    return order[:count]


def prompt_text(examples: Sequence[Question], asked: str) -> str:
    context = "\n".join(f"Question: {one.text}\nType: {one.label}" for one in examples)
    return QUESTION_TYPE.format(context=context, input=f"Question: {asked}\nType:")


def key_demonstrations(
    request: CellRequest,
    questions: Sequence[np.random.Generator],
    rng: np.random.Generator,
    *,
    balanced: bool,
) -> list[Prompt]:
    """Build many-shot prompts of eval_length - 1 tokens for toy models with key tokens.

    One key token is drawn for each family. An example is a piece of held-out text, the query token
    of a family and this family's key token. All prompts share the same examples, drawn by `rng`.
    After them, each prompt has a different piece of text and the query token of a random family.
    The right answer is its key token, which the model can only infer from the examples.
    """
    keys, shots = keys_of(request), num_shots(request.task)
    # Besides text, an example has a query and a key, and a prompt a query and its answer.
    num_text = request.eval_length - 2 - 2 * shots
    streams = long_streams(request, num_text)
    text = np.array_split(random_slice(streams, num_text, rng).astype(np.int64), shots + 1)
    names = keys.ids(np.arange(keys.families), rng.integers(keys.members, size=keys.families))
    pool = np.repeat(np.arange(keys.families), shots)
    families = pool[drawn_order(pool.tolist(), shots, rng, balanced=balanced)]
    shown = [
        np.append(part, [keys.first_query + family, names[family]])
        for part, family in zip(text[:-1], families, strict=True)
    ]
    prompts = []
    for draw in questions:
        own, family = random_slice(streams, len(text[-1]), draw), draw.integers(keys.families)
        asked = np.append(own.astype(np.int64), keys.first_query + family)
        name = token_name(request, int(names[family]))
        controls = (tuple(asked.tolist()),)
        prompts.append(Prompt(np.concatenate([*shown, asked]), name, controls=controls))
    return prompts


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
        calls(ManyShot.score_answer, score, origin, **marking("shots_1", reference, answer))
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
