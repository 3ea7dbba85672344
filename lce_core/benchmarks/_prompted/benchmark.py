"""Base class of benchmarks that build prompts, generate answers, and score these."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
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
from lce_core.benchmarks._prompted.filling import last_that_fits, require_filled, too_long
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    TokenIds,
    encode,
    end_of,
    generator,
    prompts_sha256,
    text_answers,
)
from lce_core.data.sequences import Answers, Sequences
from lce_core.models import LanguageModel
from lce_core.statistics.estimates import Estimate, mean_estimate


@dataclass(frozen=True)
class PromptForm(Form):
    """A profile with prompts in natural language and answers that are scored as text."""

    in_words: ClassVar[bool] = True
    """False if the answer is a key token of a toy model's vocabulary (`KeyForm`)."""
    num_samples: int = 0

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        return None

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        """Return how many successive held-out tokens a prompt of this profile needs.

        Natural-language prompts that need some override `Benchmark.excerpt_tokens` instead.
        """
        return 0

    def prompts(self, benchmark: PromptBenchmark, request: CellRequest) -> tuple[Prompt, ...]:
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
        task = request.task
        answers = text_answers(
            request,
            prompts,
            max_new_tokens=benchmark.new_tokens(task),
            complete=[partial(benchmark.complete, task, prompt) for prompt in prompts],
        )
        return benchmark.scored(task, prompts, answers)

    def scores(self, benchmark: PromptBenchmark, samples: Sequence[Sample]) -> tuple[Score, ...]:
        return benchmark.scores(samples)

    def num_queries(self, task: str) -> int:
        """Return how many successive prompts make up one sample."""
        return 1

    def answer_tokens(self, benchmark: PromptBenchmark, task: str) -> int:
        return benchmark.new_tokens(task)

    def fills_length(self, benchmark: PromptBenchmark) -> bool:
        return benchmark.fills_length

    def sample_tokens(self, benchmark: PromptBenchmark, task: str, eval_length: int) -> int:
        """Predict the total tokens of a sample's prompts for the cost model, without any data."""
        return benchmark.prompt_tokens(task, eval_length)


class PromptBenchmark(Benchmark):
    """Base class of benchmarks that score generated answers.

    A new benchmark defines `forms`, `answer_tokens`, `prompt` and `score_answer`. It overrides
    `build` if the prompts of a cell depend on each other, and other methods as needed.

    Prompt and answer must on average fill at least 95 % of the cell's length; otherwise the cell is
    unavailable, because its score would describe a shorter context. `fills_length = False` turns
    this rule off, and `slack_tokens` allows shorter prompts.
    """

    unit: ClassVar[str] = "accuracy"
    fills_length: ClassVar[bool] = True
    otherwise: ClassVar[str] = ""
    """Alternative to a shorter length in an error, such as "set cases: generated"."""
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    forms: ClassVar[Mapping[Profile, PromptForm]]
    answer_tokens: ClassVar[int]
    """Maximum number of tokens generated after a prompt."""
    prompt_class: ClassVar[type[Prompt]] = Prompt
    """Class of the prompts that `build` returns and the disk cache restores."""

    @property
    def form(self) -> PromptForm:
        return self.forms[self.profile]

    def tasks(self) -> tuple[str, ...]:
        return ("single",)

    def num_prompts(self, task: str) -> int:
        """Return the number of samples of a cell; by default the profile's `num_samples`."""
        return self.form.num_samples

    def prompt(self, request: CellRequest, index: int, rng: np.random.Generator) -> Prompt:
        """Build the prompt of one sample, whose random numbers are its own.

        Raises UnavailableError if prompt and answer exceed the cell's length.
        """
        raise NotImplementedError

    def build(self, request: CellRequest) -> Sequence[Prompt]:
        """Build all prompts of the cell.

        They are cached for all extension methods, so they must depend only on benchmark, task,
        length, seed, tokenizer and data.
        """
        draws = enumerate(self.draws(request))
        return [self.prompt(request, index, rng) for index, rng in draws]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        """Return the score (0..1) of the text that the model generated after `prompt`."""
        raise NotImplementedError

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        """Return True to stop generation, because text after `answer` cannot change the score."""
        return False

    def new_tokens(self, task: str) -> int:
        return self.answer_tokens

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        """Predict the mean tokens of a prompt for the cost model, without any data."""
        return eval_length

    def slack_tokens(self, request: CellRequest) -> int:
        """Return how many tokens of the cell's length prompt and answer may leave unused.

        All may leave 5 %. Override it for prompts that grow in larger steps, or whose reference
        implementation leaves more tokens unused.
        """
        return 0

    def reads_held_out(self, task: str) -> bool:
        """Return True if prompts contain held-out text, whose digest their cache key needs."""
        return False

    def cluster(self, index: int, prompt: Prompt) -> str | None:
        """Return the group of dependent samples, such as all prompts about one document.

        The bootstrap resamples a group as a whole. None, the default: all samples are independent.
        """
        return None

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        """Compute the cell's metrics: by default the mean score of its samples."""
        return (score(self.default_metric, mean_score(samples), higher_is_better=True),)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        return self.form.unavailable(base_model, task, eval_length)

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        of_form = self.form.excerpt_tokens(base_model, task, eval_length)
        return of_form or super().excerpt_tokens(base_model, task, eval_length)

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        return self.num_prompts(task) * self.form.sample_tokens(self, task, eval_length)

    def answers(self, task: str) -> Answers:
        return Answers(self.num_prompts(task), self.form.answer_tokens(self, task))

    def evaluate(self, request: CellRequest) -> CellResult:
        prompts = self.prompts(request)
        sequences = self.require_filled(request, prompts)
        samples = self.form.samples(self, request, prompts)
        return CellResult(
            scores=self.form.scores(self, samples),
            samples=self.with_ends(request, prompts, samples),
            sequences=sequences,
            prompts_sha256=prompts_sha256(prompts),
        )

    def with_ends(
        self, request: CellRequest, prompts: Sequence[Prompt], samples: Sequence[Sample]
    ) -> tuple[Sample, ...]:
        size = self.form.num_queries(request.task)
        return tuple(
            replace(sample, prompt_end=end_of(prompt, request.tokenizer))
            for sample, prompt in zip(samples, prompts[size - 1 :: size], strict=True)
        )

    def require_filled(self, request: CellRequest, prompts: Sequence[Prompt]) -> Sequences:
        """Return the prompts' lengths in tokens; raise UnavailableError if they are too short."""
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
        return self.form.prompts(self, request)

    def scored(
        self, task: str, prompts: Sequence[Prompt], answers: Sequence[str]
    ) -> tuple[Sample, ...]:
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
        """Return one random generator per sample.

        It is seeded by benchmark, task, length, the study's seed and the sample's index.
        """
        place = (self.plugin_name, request.task, request.eval_length, request.seed)
        return [generator(*place, index) for index in range(self.num_prompts(request.task))]

    def filled(self, request: CellRequest, text: Callable[[int], str]) -> TokenIds:
        """Return the token ids of the prompt with the most filler that leaves room for its answer.

        `text` returns the prompt with a number of filler parts, such as sentences.
        """
        return self.fitted(request, text(self.parts_that_fit(request, text)))

    def parts_that_fit(self, request: CellRequest, text: Callable[[int], str]) -> int:
        """Return the most filler parts (see `filled`) that fit; 0 even if the prompt does not."""
        room = request.eval_length - self.new_tokens(request.task)

        def fits(parts: int) -> bool:
            return len(encode(request, text(parts))) <= room

        low, high = 0, 1
        while high <= room and fits(high):
            low, high = high, 2 * high
        return last_that_fits(fits, low, high)

    def fitted(self, request: CellRequest, text: str) -> TokenIds:
        """Return the prompt's token ids; raise UnavailableError if the answer does not fit."""
        ids = encode(request, text)
        needed = len(ids) + self.new_tokens(request.task)
        if needed > request.eval_length:
            raise too_long(request, f"a prompt of {self.plugin_name} and its answer", needed)
        return np.array(ids, dtype=np.int64)


def strata(draws: Sequence[np.random.Generator], whole: float = 1.0) -> list[float]:
    """Draw a stratified sample: one number from each of len(draws) equal intervals of 0..whole."""
    return [whole * (index + rng.random()) / len(draws) for index, rng in enumerate(draws)]


def mean_score(samples: Sequence[Sample]) -> Estimate:
    """Return the mean score of samples with its 95 % confidence interval."""
    return mean_estimate(
        [sample.score for sample in samples], [sample.cluster for sample in samples]
    )
