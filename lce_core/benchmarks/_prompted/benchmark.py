"""Base class of benchmarks that build prompts, generate answers, and score these."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from lce_core.benchmarks._base import Benchmark, CellRequest, CellResult, Sample, Score
from lce_core.benchmarks._prompted.cache import cell_prompts
from lce_core.benchmarks._prompted.chat import Frame
from lce_core.benchmarks._prompted.keys import KeyTask, joined, token_name
from lce_core.benchmarks._prompted.metrics import (
    CONTROL_TOKENS,
    column_mean,
    compared,
    control_prompts,
    label_scores,
    prompt_checks,
)
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    TokenIds,
    answer_text,
    encode,
    end_of,
    generator,
    prompts_sha256,
    text_answers,
    token_ids,
    too_long,
)
from lce_core.data.sequences import Answers, Sequences
from lce_core.errors import SpecError, UnavailableError
from lce_core.kinds import CONTROLS, WORDINGS
from lce_core.models import LanguageModel
from lce_core.progress import no_progress

FULL_SHARE = Fraction(95, 100)
"""Fraction of the cell's length that prompt and answer must reach, on average over prompts."""


class PromptBenchmark(Benchmark):
    """Base class of benchmarks that score generated answers.

    A new benchmark defines `profiles`, `answer_tokens`, `prompt` and `score_answer`. It overrides
    `build` if the prompts of a cell depend on each other, and other methods as needed.

    A profile with `keys` has prompts for toy models (`KeyTask`) instead, whose answers are single
    tokens. If prompts have a context (`Prompt.context_tokens`), the cell has two more metrics:
    `choice`, the fraction of questions whose right label is more likely than every other, and
    `margin`, the log-probability of the right label minus the mean log-probability of the others,
    in nats. A label's log-probability is the sum over its tokens, after a space.

    Prompt and answer must on average fill at least 95 % of the cell's length; otherwise the cell is
    unavailable, because its score would describe a shorter context. `fills_length = False` turns
    this rule off, and `slack_tokens` allows shorter prompts.
    """

    unit = "accuracy"
    fills_length = True
    otherwise: ClassVar[str] = ""
    """Alternative to a shorter length in an error, such as "set cases: generated"."""
    seeded = True
    default_metric = "accuracy"
    answer_tokens: ClassVar[int]
    """Maximum number of tokens generated after a prompt."""
    task_names: ClassVar[tuple[str, ...]] = ("single",)
    """Names of the tasks, in the order in which tables list them."""
    conversation: ClassVar[bool] = False
    """True asks each question about a context after the model's own answers to the earlier ones."""
    drawn_as: ClassVar[str] = ""
    """Name of another benchmark that draws the same; empty: the draws are the benchmark's own."""
    has_messages: ClassVar[bool] = False
    """True if `build` puts the messages of each prompt into the chat template itself."""

    chat: bool = False
    """True puts each prompt into the base model's chat template, as the message of the user. The
    length includes the template's tokens."""
    system_prompt: str | None = None
    """System prompt of the chat; None leaves it to the template."""
    controls: bool = False
    """True also answers each prompt without its context (metric `no_context`) and with only the
    neighbourhood of the answer, such as the sentence that states it (`local_context`)."""

    @model_validator(mode="after")
    def _require_a_chat(self) -> Self:
        if self.chat and (self.conversation or not self.in_words):
            raise SpecError(
                "chat",
                "true",
                "false where a prompt asks several questions or is not in words",
                "omit it, or choose another profile or benchmark",
            )
        if self.system_prompt is not None and not self.chat:
            raise SpecError(
                "system_prompt",
                "a prompt without a chat",
                "`chat: true` beside it",
                "add that, or omit the system prompt",
            )
        return self

    @property
    def in_words(self) -> bool:
        """False if answers are key tokens of a toy model's vocabulary."""
        return "keys" not in self.profiles[self.profile].defaults

    def key_task(self, task: str) -> KeyTask | None:
        """Return the key tokens of a task's prompts; None if its prompts are in words."""
        keys: KeyTask | None = self.profiles[self.profile].defaults.get("keys")
        return keys

    def tasks(self) -> tuple[str, ...]:
        return self.task_names

    def num_prompts(self, task: str) -> int:
        """Return the number of samples of a cell; by default the setting `num_samples`."""
        return int(self.setting("num_samples") or 0)

    def num_groups(self, task: str) -> int:
        """Return the number of independent draws of a cell, each of one or more prompts."""
        return self.num_prompts(task)

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        return self.num_groups(task)

    def num_parts(self, task: str, *, half: bool) -> int:
        return self.num_prompts(task) if half else 1

    def prompts_per_sample(self, task: str) -> int:
        key_task = self.key_task(task)
        return key_task.num_queries if key_task else 1

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

    def key_prompts(self, request: CellRequest, task: KeyTask) -> Sequence[Prompt]:
        draws = self.draws(request)
        return task.prompts(request, self.depths(draws), draws)

    def depths(self, draws: Sequence[np.random.Generator]) -> list[float]:
        """Return the depth of each sample's key token in per cent; by default a stratified draw."""
        return strata(draws, 100)

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        """Return the score (0..1) of the text that the model generated after `prompt`."""
        raise NotImplementedError

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        """Return True to stop generation, because text after `answer` cannot change the score."""
        return False

    def new_tokens(self, task: str) -> int:
        return self.answer_tokens

    def longest_answer(self, task: str) -> int:
        return self.new_tokens(task) if self.in_words else 1

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
        """Return True if prompts in words contain held-out text, by default of the cell's length.

        The key of the prompt cache then includes the digest of that text.
        """
        return False

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        """Compute the cell's metrics: by default the mean score of its samples."""
        return (column_mean(samples, "score", self.default_metric),)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        key_task = self.key_task(task)
        return key_task.unavailable(base_model, eval_length) if key_task else None

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        if key_task := self.key_task(task):
            return key_task.excerpt_tokens(base_model, eval_length)
        return eval_length if self.reads_held_out(task) else 0

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        each = self.prompt_tokens(task, eval_length) if self.in_words else eval_length
        return self.num_prompts(task) * self.prompts_per_sample(task) * each

    def control_sequences(self, task: str) -> Sequences:
        number = len(CONTROLS) * self.num_prompts(task) * self.prompts_per_sample(task)
        length = CONTROL_TOKENS if self.in_words else 2
        return Sequences({length: number} if self.controls else {})

    def answers(self, task: str) -> Answers:
        return Answers(self.num_prompts(task), self.longest_answer(task))

    def evaluate(self, request: CellRequest) -> CellResult:
        prompts = self.prompts(request)
        sequences = self.require_filled(request, prompts)
        found = self.answered(request, prompts)
        samples, scores, lengths = found.samples, [*found.scores], list[int]()
        for name in CONTROLS if self.controls else ():
            if short := control_prompts(prompts, name):
                scored = self.samples(replace(request, report=no_progress), short)
                columns: list[dict[str, Any]] = [{name: one.score} for one in scored]
                pairs = zip(samples, columns, strict=True)
                samples = tuple(replace(one, **column) for one, column in pairs)
                scores.append(column_mean(samples, name))
                lengths += [len(one.ids) for one in short]
        size = self.prompts_per_sample(request.task)
        samples = tuple(
            replace(sample, prompt_end=end_of(prompt, request.tokenizer))
            for sample, prompt in zip(samples, prompts[size - 1 :: size], strict=True)
        )
        return replace(
            found,
            scores=tuple(scores),
            samples=samples,
            sequences=sequences,
            control_sequences=Sequences.of(lengths),
            checks=self.checks(request, prompts),
            prompts_sha256=prompts_sha256(prompts),
        )

    def answered(self, request: CellRequest, prompts: Sequence[Prompt]) -> CellResult:
        """Return the samples and scores of the prompts, without those of the controls."""
        samples = self.samples(request, prompts)
        return CellResult((*self.scores(samples), *label_scores(samples)), samples)

    def checks(self, request: CellRequest, prompts: Sequence[Prompt]) -> dict[str, int]:
        # Held-out text separates documents, and a template may separate turns, by the begin token.
        in_one_text = self.in_words and not (self.chat or self.reads_held_out(request.task))
        return prompt_checks(request, prompts, in_words=self.in_words, in_one_text=in_one_text)

    def prompts(self, request: CellRequest) -> tuple[Prompt, ...]:
        """Return the cell's prompts from the cache; those with key tokens are cheap to build."""
        if not self.in_words:
            return tuple(self.fresh_prompts(request))
        held_out = self.reads_held_out(request.task)
        return cell_prompts(self, request, self.fresh_prompts, reads_held_out=held_out)

    def fresh_prompts(self, request: CellRequest) -> Sequence[Prompt]:
        if key_task := self.key_task(request.task):
            return self.key_prompts(request, key_task)
        if not self.chat or self.has_messages:
            return self.build(request)
        frame = Frame.of(request, self.system_prompt)
        length = request.eval_length - frame.num_tokens
        reason = self.unavailable(request.base_model, request.task, length)
        if reason or length <= frame.begin:
            raise UnavailableError(
                "eval_length",
                f"{request.eval_length} tokens, of which the chat template takes"
                f" {frame.num_tokens}",
                reason or "at least one token for a prompt",
                "use a longer length",
            )
        shorter = replace(request, eval_length=length, template_tokens=frame.num_tokens)
        return [frame.around(one) for one in self.build(shorter)]

    def require_filled(self, request: CellRequest, prompts: Sequence[Prompt]) -> Sequences:
        """Return the prompts' lengths in tokens; raise UnavailableError if they are too short.

        They are if prompt plus answer are, on average, below `FULL_SHARE` of the cell's length and
        below the length minus `slack_tokens`.
        """
        sequences = Sequences.of(len(prompt.ids) for prompt in prompts)
        if not self.fills_length and self.in_words:
            return sequences
        length, answer_tokens = request.eval_length, self.longest_answer(request.task)
        filled = Fraction(sequences.num_tokens, len(prompts)) + answer_tokens
        least = FULL_SHARE * length
        if filled < least:
            # Only now, because the slack may depend on data that have to be read.
            least = min(least, Fraction(length - self.slack_tokens(request)))
        if filled < least:
            found = sequences.lengths
            or_else = f", or {self.otherwise}" if self.otherwise else ""
            raise UnavailableError(
                "eval_length",
                f"prompts of {found['min']:,} to {found['max']:,} tokens, mean"
                f" {found['mean']:,.0f}, for a length of {length:,} tokens including"
                f" {answer_tokens:,} for the answer",
                f"prompts of at least {math.ceil(least) - answer_tokens:,} tokens on average",
                f"use a length of at most {found['max'] + answer_tokens:,} tokens{or_else}",
            )
        return sequences

    def samples(self, request: CellRequest, prompts: Sequence[Prompt]) -> tuple[Sample, ...]:
        task = request.task
        if prompts[0].context_tokens:
            contexts = self.answered_contexts(request, prompts)
            return tuple(sample for _, samples, _ in contexts for sample in samples)
        answers = text_answers(
            request,
            prompts,
            max_new_tokens=self.longest_answer(task),
            complete=[partial(self.complete, task, prompt) for prompt in prompts],
            text_of=self.text_of,
        )
        return joined(self.scored(task, prompts, answers), self.prompts_per_sample(task))

    def text_of(self, request: CellRequest, ids: TokenIds) -> str:
        """Return the text of an answer: words, or the name of its key token."""
        return answer_text(request, ids) if self.in_words else token_name(request, int(ids[0]))

    def answered_contexts(
        self, request: CellRequest, prompts: Sequence[Prompt]
    ) -> Iterator[tuple[list[Prompt], list[Sample], NDArray[np.float32]]]:
        """Ask the questions about each context; successive prompts share its forward pass.

        Yields (prompts of the context, their samples, NLL in nats of the context's tokens 1..n-1).
        """
        from lce_core.evaluation.shared_context import Question, ask

        task, done, in_words = request.task, 0, self.in_words
        # In a conversation the stopping rule also decides what the next question follows.
        stops = in_words and (request.savings or self.conversation)

        def label_ids(label: str) -> TokenIds:
            if in_words:
                return token_ids(request, f" {label}")
            return np.array([request.tokenizer.convert_tokens_to_ids(label)], dtype=np.int64)

        def complete(prompt: Prompt, ids: TokenIds) -> bool:
            return self.complete(task, prompt, self.text_of(request, ids))

        for _, group in groupby(prompts, key=lambda prompt: prompt.context):
            asked = list(group)
            num_tokens = asked[0].context_tokens
            found = ask(
                request.model,
                asked[0].ids[:num_tokens],
                [
                    Question(
                        prompt.ids[num_tokens:],
                        tuple(map(label_ids, prompt.labels)),
                        partial(complete, prompt) if stops else None,
                    )
                    for prompt in asked
                ],
                max_new_tokens=self.longest_answer(task),
                num_tokens=request.eval_length,
                share=request.savings,
                conversation=self.conversation,
                cell=request.cell,
            )
            answers = [self.text_of(request, ids) for ids in found.answers]
            scored = self.scored(task, asked, answers, first=done)
            samples = [
                compared(sample, prompt, values)
                for sample, prompt, values in zip(scored, asked, found.log_likelihoods, strict=True)
            ]
            done += len(asked)
            request.report(done, len(prompts))
            yield asked, samples, found.nll

    def scored(
        self, task: str, prompts: Sequence[Prompt], answers: Sequence[str], first: int = 0
    ) -> tuple[Sample, ...]:
        """Return a sample, numbered from `first`, for each prompt and its answer."""

        def right(prompt: Prompt, answer: str) -> float:
            if self.in_words:
                return self.score_answer(task, prompt, answer)
            return float(answer == prompt.reference)

        return tuple(
            Sample(
                index,
                len(prompt.ids),
                right(prompt, answer),
                prompt.depth,
                answer,
                prompt.reference,
                prompt.cluster,
            )
            for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True), first)
        )

    def draws(self, request: CellRequest) -> list[np.random.Generator]:
        """Return a random generator for each of `num_groups`.

        Its seed is benchmark (`drawn_as`), task, length, the study's seed and the index, so all
        methods answer the same prompts.
        """
        place = (self.drawn_as or self.plugin_name, request.task, request.cell_length, request.seed)
        return [generator(*place, index) for index in range(self.num_groups(request.task))]

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
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

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


class Sampled(PromptBenchmark):
    """Base class of benchmarks with a parameter for the number of prompts."""

    num_samples: int | None = Field(default=None, gt=0)
    """Prompts per task; None means the number of the profile. Rows of a data set are evenly
    spaced."""


_KEY_FRAMES = (("", ""), ("\n", "\n"), (" Key: ", " Key? "))


class Worded(PromptBenchmark):
    """Base class of benchmarks whose prompts have three wordings, each a task of its own."""

    wordings: int = Field(default=1, ge=1, le=len(WORDINGS))
    """Number of wordings, each a task of its own: "single" is the published prompt, "wording_1" and
    "wording_2" ask for the same keys at the same depths in other words."""

    def tasks(self) -> tuple[str, ...]:
        return WORDINGS[: self.wordings]

    def key_task(self, task: str) -> KeyTask | None:
        keys = super().key_task(task)
        return keys and replace(keys, frame=_KEY_FRAMES[WORDINGS.index(task)])

    def num_independent(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Return the task's part of the draws, which all wordings share."""
        return max(1, self.num_groups(task) // self.wordings)

    def draws(self, request: CellRequest) -> list[np.random.Generator]:
        """Leave out the task, so that scores differ between tasks only by the wording."""
        return super().draws(replace(request, task=WORDINGS[0]))
