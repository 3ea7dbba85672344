"""Benchmarks that ask prompts: build them, generate answers, score each answer.

`PromptBenchmark` does what all of them have in common. A benchmark defines the number of prompts
per cell, each prompt, and the score of an answer. Profiles differ in their `PromptForm`; a profile
that asks for key tokens instead of words uses `KeyForm`.
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
from lce_core.benchmarks._prompted.filling import last_that_fits, require_filled
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
from lce_core.statistics.estimates import Estimate, mean_estimate


@dataclass(frozen=True)
class PromptForm(Form):
    """A profile with prompts in natural language, whose answers are scored as text."""

    in_words: ClassVar[bool] = True
    """True if prompts are natural language; False if they ask for key tokens (`KeyForm`)."""
    num_samples: int = 0
    """Prompts per cell if the study gives no number."""

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Return why this profile cannot run with this model, task or length; None if it can."""
        return None

    def prompts(self, benchmark: PromptBenchmark, request: CellRequest) -> tuple[Prompt, ...]:
        """Return all prompts of the cell, from the cache if another method has built them."""
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
        """Generate an answer to every prompt and score it; one sample per prompt."""
        task = request.task
        answers = text_answers(
            request,
            prompts,
            max_new_tokens=benchmark.new_tokens(task),
            complete=[partial(benchmark.complete, task, prompt) for prompt in prompts],
        )
        return benchmark.scored(task, prompts, answers)

    def scores(self, benchmark: PromptBenchmark, samples: Sequence[Sample]) -> tuple[Score, ...]:
        """Compute the cell's scores from its samples."""
        return benchmark.scores(samples)

    def num_queries(self, task: str) -> int:
        """Return how many successive entries of `prompts` form one sample."""
        return 1

    def answer_tokens(self, benchmark: PromptBenchmark, task: str) -> int:
        """Return the maximum number of generated tokens."""
        return benchmark.new_tokens(task)

    def fills_length(self, benchmark: PromptBenchmark) -> bool:
        """Return True if prompts must fill the cell's length (see `PromptBenchmark`)."""
        return benchmark.fills_length

    def sample_tokens(self, benchmark: PromptBenchmark, task: str, eval_length: int) -> int:
        """Predict how many prompt tokens a sample has, without data."""
        return benchmark.prompt_tokens(task, eval_length)


class PromptBenchmark(Benchmark):
    """Base of benchmarks that ask prompts.

    A new benchmark defines `forms`, `answer_tokens`, `prompt` and `score_answer`. It overrides
    `build` if the prompts of a cell depend on each other, and other methods as needed.

    Prompts must fill the length of their cell. If they do not, the cell is unavailable and no model
    is run. `fills_length` and `slack_tokens` relax this rule.
    """

    unit: ClassVar[str] = "accuracy"
    fills_length: ClassVar[bool] = True
    otherwise: ClassVar[str] = ""
    """Other ways to fill the length ("set ..."), for the message of cells whose prompts are too
    short."""
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    forms: ClassVar[Mapping[Profile, PromptForm]]
    answer_tokens: ClassVar[int]
    """Maximum number of generated tokens."""
    prompt_class: ClassVar[type[Prompt]] = Prompt

    @property
    def form(self) -> PromptForm:
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        return ("single",)

    def num_prompts(self, task: str) -> int:
        """Return the number of samples of a cell: the profile's, unless a parameter sets it."""
        return self.form.num_samples

    def prompt(self, request: CellRequest, index: int, rng: np.random.Generator) -> Prompt:
        """Build the prompt of sample `index`; `rng` is the sample's own random generator.

        Raises:
          UnavailableError: if the length cannot hold it; the message states the minimum.
        """
        raise NotImplementedError

    def build(self, request: CellRequest) -> Sequence[Prompt]:
        """Build the cell's prompts.

        They are cached for other methods, so they must depend only on benchmark, task, length,
        seed, tokenizer and data.
        """
        draws = enumerate(self.draws(request))
        return [self.prompt(request, index, rng) for index, rng in draws]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        """Return the score of the text that the model generated after a prompt, 0 to 1."""
        raise NotImplementedError

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        """Return True if text after `answer` cannot change its score; generation then stops."""
        return False

    def new_tokens(self, task: str) -> int:
        """Return the maximum number of generated tokens in a task."""
        return self.answer_tokens

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        """Predict the length of a prompt in tokens, without data."""
        return eval_length

    def slack_tokens(self, request: CellRequest) -> int:
        """Return by how many tokens prompts may be shorter than the cell's length.

        This is for prompts that grow in large steps, which can miss more than 5 % of a length, and
        for tasks whose reference implementation leaves part of the length free.
        """
        return 0

    def reads_held_out(self, task: str) -> bool:
        """Return True if prompts contain held-out text; their cache key then includes it."""
        return False

    def cluster(self, index: int, prompt: Prompt) -> str | None:
        """Return `Sample.cluster` of a sample: a name that dependent samples share, or None."""
        return None

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        """Compute the cell's scores: by default the mean over samples as `default_metric`."""
        return (score(self.default_metric, mean_score(samples), higher_is_better=True),)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Return why the profile cannot run with this model, task or length; None if it can."""
        return self.form.unavailable(base_model, task, eval_length)

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Predict the cell's tokens: number of prompts times their length."""
        return self.num_prompts(task) * self.form.sample_tokens(self, task, eval_length)

    def answers(self, task: str) -> Answers:
        """Return one answer per prompt, each of the profile's maximum length."""
        return Answers(self.num_prompts(task), self.form.answer_tokens(self, task))

    def evaluate(self, request: CellRequest) -> CellResult:
        """Check that the prompts fill the length, then generate and score an answer to each.

        Raises:
          UnavailableError: if the prompts are too short; the message states their length.
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
        """Check that the prompts fill the cell's length; return their lengths in tokens.

        Raises:
          UnavailableError: if the prompts are too short for the cell's length.
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
        """Return all prompts of the cell.

        Raises:
          UnavailableError: if the length cannot hold the task, or its data is not on this machine.
          DataError: if data cannot be read; the message names the place.
        """
        return self.form.prompts(self, request)

    def scored(
        self, task: str, prompts: Sequence[Prompt], answers: Sequence[str]
    ) -> tuple[Sample, ...]:
        """Score each prompt's answer and return one sample per prompt."""
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
        """Return one generator per sample, seeded by benchmark, task, length, seed and index."""
        place = (self.plugin_name, request.task, request.eval_length, request.seed)
        return [generator(*place, index) for index in range(self.num_prompts(request.task))]

    def filled(self, request: CellRequest, text: Callable[[int], str]) -> TokenIds:
        """Return the token ids of the prompt with the most filler that leaves room for its answer.

        Args:
          request: provides tokenizer and length.
          text: builds the prompt with the given number of filler parts, 0 or more.

        Raises:
          UnavailableError: if the prompt without filler exceeds the length; the message states the
            minimum.
        """
        return self.fitted(request, text(self.parts_that_fit(request, text)))

    def parts_that_fit(self, request: CellRequest, text: Callable[[int], str]) -> int:
        """Return the most filler parts that leave room for the answer; 0 if none fits."""
        room = request.eval_length - self.new_tokens(request.task)

        def fits(parts: int) -> bool:
            return len(encode(request, text(parts))) <= room

        # Double until the text is too long.
        low, high = 0, 1
        while high <= room and fits(high):
            low, high = high, 2 * high
        return last_that_fits(fits, low, high)

    def fitted(self, request: CellRequest, text: str) -> TokenIds:
        """Return the token ids of `text`, after a check that they leave room for an answer.

        Raises:
          UnavailableError: if prompt and answer exceed the length; the message states the minimum.
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
    """Divide 0..whole into len(draws) equal parts and draw one number from each, in order."""
    return [whole * (index + rng.random()) / len(draws) for index, rng in enumerate(draws)]


def mean_score(samples: Sequence[Sample]) -> Estimate:
    """Return the mean score with an interval: bootstrap over clusters, or Wilson for 0/1 scores."""
    return mean_estimate(
        [sample.score for sample in samples], [sample.cluster for sample in samples]
    )
