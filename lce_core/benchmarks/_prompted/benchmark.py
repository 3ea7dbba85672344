"""Benchmarks that ask prompts: build them, generate, score each answer.

`PromptBenchmark` does what all of them do the same way. A benchmark says how many prompts a cell
has, what each of them is and what an answer is worth. What differs between profiles is a
`PromptForm`; one that asks for key tokens instead of words is a `KeyForm`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np

from lce_core.benchmarks._base import (
    Benchmark,
    CellRequest,
    CellResult,
    Form,
    Profile,
    Sample,
    Score,
    score,
)
from lce_core.benchmarks._prompted.cache import cell_prompts
from lce_core.benchmarks._prompted.filling import require_filled
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    TokenIds,
    encode,
    generator,
    prompts_sha256,
    text_answers,
)
from lce_core.data.sequences import Answers, Sequences
from lce_core.errors import UnavailableError
from lce_core.models import LanguageModel
from lce_core.statistics.estimates import Estimate, bootstrap_mean, wilson


@dataclass(frozen=True)
class PromptForm(Form):
    """A profile that asks in words: the benchmark's own prompts, and answers scored as text."""

    in_words: ClassVar[bool] = True
    """Whether prompts are the benchmark's own text, with the data that it reads."""
    num_samples: int = 0
    """Prompts of a cell where the study gives no number."""

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Why the form cannot be asked; None if it can."""
        return None

    def prompts(self, benchmark: PromptBenchmark, request: CellRequest) -> tuple[Prompt, ...]:
        """All prompts of the cell, kept for other methods."""
        return cell_prompts(
            benchmark,
            request,
            lambda: benchmark.build(request),
            benchmark.prompt_class,
            reads_held_out=benchmark.reads_held_out(request.task),
        )

    def samples(
        self, benchmark: PromptBenchmark, request: CellRequest, prompts: Sequence[Prompt]
    ) -> tuple[Sample, ...]:
        """Asks every prompt and scores its answer."""
        task = request.task
        answers = text_answers(
            request,
            prompts,
            max_new_tokens=benchmark.new_tokens(task),
            complete=[partial(benchmark.complete, task, prompt) for prompt in prompts],
        )
        return benchmark.scored(task, prompts, answers)

    def scores(self, benchmark: PromptBenchmark, samples: Sequence[Sample]) -> tuple[Score, ...]:
        """The cell's numbers."""
        return benchmark.scores(samples)

    def num_queries(self, task: str) -> int:
        """Prompts of a sample, which follow each other in `prompts`."""
        return 1

    def answer_tokens(self, benchmark: PromptBenchmark, task: str) -> int:
        """Tokens that are generated at most."""
        return benchmark.new_tokens(task)

    def fills_length(self, benchmark: PromptBenchmark) -> bool:
        """Whether prompts are made to fill the length."""
        return benchmark.fills_length

    def sample_tokens(self, benchmark: PromptBenchmark, task: str, eval_length: int) -> int:
        """Tokens that a sample takes through the model, predicted without data."""
        return benchmark.prompt_tokens(task, eval_length)


class PromptBenchmark(Benchmark):
    """Base of benchmarks that ask prompts.

    A new one defines `forms`, `answer_tokens`, `prompt` and `score_answer`. It overrides `build`
    where the prompts of a cell depend on each other, and what else is not as it should be.

    Prompts stand for the length of their cell: a cell whose prompts do not fill it is unavailable,
    and no model is asked. What else a length may mean, `fills_length` and `slack_tokens` say.
    """

    unit: ClassVar[str] = "accuracy"
    fills_length: ClassVar[bool] = True
    otherwise: ClassVar[str] = ""
    """What else fills the length, in the reason of cells whose prompts do not ("set ...")."""
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    forms: ClassVar[Mapping[Profile, PromptForm]]
    answer_tokens: ClassVar[int]
    """Tokens that are generated at most."""
    prompt_class: ClassVar[type[Prompt]] = Prompt

    @property
    def form(self) -> PromptForm:
        """What the profile does."""
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        """One task."""
        return ("single",)

    def num_prompts(self, task: str) -> int:
        """Samples of a cell."""
        return self.form.num_samples

    def prompt(self, request: CellRequest, index: int, rng: np.random.Generator) -> Prompt:
        """One prompt, from random numbers that are its own.

        Raises:
          UnavailableError: the length cannot hold it; says the minimum.
        """
        raise NotImplementedError

    def build(self, request: CellRequest) -> Sequence[Prompt]:
        """All prompts of the cell, which follow from all that the request says but the model."""
        draws = enumerate(self.draws(request))
        return [self.prompt(request, index, rng) for index, rng in draws]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        """What the continuation of a prompt is worth, 0 to 1."""
        raise NotImplementedError

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        """Whether more text could not change the score any more, so that decoding may stop."""
        return False

    def new_tokens(self, task: str) -> int:
        """Tokens that are generated at most in a task."""
        return self.answer_tokens

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        """Tokens of a prompt, predicted without data."""
        return eval_length

    def slack_tokens(self, request: CellRequest) -> int:
        """Tokens by which a task's own definition lets prompts stay below the length.

        For prompts that grow by parts so large that the next one may miss 5 % of a length, or whose
        reference leaves some of it free.
        """
        return 0

    def reads_held_out(self, task: str) -> bool:
        """Whether prompts in words are cut from the held-out text."""
        return False

    def cluster(self, index: int, prompt: Prompt) -> str | None:
        """Unit of resampling of a sample; None: every sample by itself."""
        return None

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        """The cell's numbers: the mean over samples under `default_metric`."""
        return (score(self.default_metric, mean_score(samples), higher_is_better=True),)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """A form that the base model or the length does not allow."""
        return self.form.unavailable(base_model, task, eval_length)

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Prompts times their length."""
        return self.num_prompts(task) * self.form.sample_tokens(self, task, eval_length)

    def answers(self, task: str) -> Answers:
        """One to each prompt, as long as the form lets it be."""
        return Answers(self.num_prompts(task), self.form.answer_tokens(self, task))

    def evaluate(self, request: CellRequest) -> CellResult:
        """Asks every prompt, once it is certain that they fill the length.

        Raises:
          UnavailableError: they do not; says how long they are.
        """
        prompts = self.prompts(request)
        sequences = self.require_filled(request, prompts)
        samples = self.form.samples(self, request, prompts)
        return CellResult(
            scores=self.form.scores(self, samples),
            samples=samples,
            sequences=sequences,
            prompts_sha256=prompts_sha256(prompts),
        )

    def require_filled(self, request: CellRequest, prompts: Sequence[Prompt]) -> Sequences:
        """The lengths of the cell's prompts, which are those that it stands for.

        Raises:
          UnavailableError: the prompts are too short for the cell's length.
        """
        sequences = Sequences.of(len(prompt.ids) for prompt in prompts)
        if self.form.fills_length(self):
            require_filled(
                sequences,
                self.form.answer_tokens(self, request.task),
                request.eval_length,
                lambda: self.slack_tokens(request),
                self.otherwise,
            )
        return sequences

    def prompts(self, request: CellRequest) -> tuple[Prompt, ...]:
        """All prompts of the cell.

        Raises:
          UnavailableError: the length cannot hold the task, or its data are not on this machine.
          DataError: data that cannot be read; names the place.
        """
        return self.form.prompts(self, request)

    def scored(
        self, task: str, prompts: Sequence[Prompt], answers: Sequence[str]
    ) -> tuple[Sample, ...]:
        """A sample for each prompt and its answer."""
        return tuple(
            Sample(
                index,
                len(prompt.ids),
                self.score_answer(task, prompt, answer),
                prompt.depth,
                answer,
                prompt.reference,
                self.cluster(index, prompt),
            )
            for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        )

    def draws(self, request: CellRequest) -> list[np.random.Generator]:
        """Random numbers of each sample: they follow from benchmark, task, length, seed, index."""
        place = (self.plugin_name, request.task, request.eval_length, request.seed)
        return [generator(*place, index) for index in range(self.num_prompts(request.task))]

    def filled(self, request: CellRequest, text: Callable[[int], str]) -> TokenIds:
        """Token ids of the longest prompt that leaves room for its answer.

        Args:
          request: tokenizer and length.
          text: the prompt with so many parts of filler, 0 or more.

        Raises:
          UnavailableError: the prompt without filler exceeds the length; says the minimum.
        """
        return self.fitted(request, text(self.parts_that_fit(request, text)))

    def parts_that_fit(self, request: CellRequest, text: Callable[[int], str]) -> int:
        """Most parts of filler with which `filled` leaves room for the answer; 0 if none fits."""
        room = request.eval_length - self.new_tokens(request.task)
        low, high = 0, 1
        while high <= room and len(encode(request, text(high))) <= room:
            low, high = high, 2 * high
        while high - low > 1:
            middle = (low + high) // 2
            if len(encode(request, text(middle))) <= room:
                low = middle
            else:
                high = middle
        return low

    def fitted(self, request: CellRequest, text: str) -> TokenIds:
        """Token ids of a prompt that leaves room for its answer.

        Raises:
          UnavailableError: they exceed the length; says the minimum.
        """
        ids = encode(request, text)
        needed = len(ids) + self.new_tokens(request.task)
        if needed > request.eval_length:
            raise UnavailableError(
                "eval_length",
                f"{request.eval_length} tokens, where a prompt of {self.plugin_name} and its answer"
                f" take {needed}",
                f"at least {needed} tokens",
                "evaluate longer contexts",
            )
        return np.array(ids, dtype=np.int64)


def strata(draws: Sequence[np.random.Generator], whole: float = 1.0) -> list[float]:
    """A number in 0..whole from each generator, one from each of as many equal parts."""
    return [whole * (index + rng.random()) / len(draws) for index, rng in enumerate(draws)]


def mean_score(samples: Sequence[Sample]) -> Estimate:
    """Mean with its interval: over clusters where samples have them, Wilson's for 0 and 1."""
    scores = [sample.score for sample in samples]
    clusters = [sample.cluster for sample in samples]
    if clusters[0] is not None:
        return bootstrap_mean(scores, clusters=clusters)
    if all(value in (0, 1) for value in scores):
        return wilson(int(sum(scores)), len(scores))
    return bootstrap_mean(scores)
