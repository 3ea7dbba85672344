"""A profile that hides key tokens in text: retrieval that toy models can learn.

A base model with key tokens has families of keys and one query token per family. A prompt is text
that contains keys of distinct families, followed by the query of one family. The next token must be
that family's key.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from lce_core.benchmarks._base import CellRequest, Sample, Score, score
from lce_core.benchmarks._prompted.benchmark import (
    PromptBenchmark,
    PromptForm,
    mean_score,
    strata,
)
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    key_prompts,
    key_samples,
    key_task_reason,
)
from lce_core.models import LanguageModel


@dataclass(frozen=True)
class KeyForm(PromptForm):
    """One-token keys hidden in held-out text; the model must name the key of the queried family."""

    in_words: ClassVar[bool] = False
    num_distractors: int = 0
    """Number of keys of other families in the same text."""

    def distractors(self, base_model: LanguageModel, task: str) -> int:
        """Return how many keys of other families the text contains."""
        return self.num_distractors

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """Return why this profile cannot run: no key tokens, too few families, or no room."""
        return key_task_reason(base_model, self.distractors(base_model, task), eval_length)

    def prompts(self, benchmark: PromptBenchmark, request: CellRequest) -> tuple[Prompt, ...]:
        """Return all prompts of the cell, built anew each time because this is cheap."""
        return tuple(self.build(benchmark, request))

    def build(self, benchmark: PromptBenchmark, request: CellRequest) -> Sequence[Prompt]:
        """Build the cell's prompts; `depths` gives the depth of each prompt's key.

        Raises:
          UnavailableError: if there is too little held-out text.
        """
        draws = benchmark.draws(request)
        distractors = self.distractors(request.base_model, request.task)
        return key_prompts(request, distractors, self.depths(draws), draws)

    def depths(self, draws: Sequence[np.random.Generator]) -> list[float]:
        """Return each prompt's key depth, 0 to 100: prompt i draws it from the i-th of n parts."""
        return strata(draws, 100)

    def samples(
        self, benchmark: PromptBenchmark, request: CellRequest, prompts: Sequence[Prompt]
    ) -> tuple[Sample, ...]:
        """Generate one token after each prompt; the score is 1 if it is the key."""
        scored = zip(key_samples(request, prompts), prompts, strict=True)
        return tuple(
            replace(sample, cluster=benchmark.cluster(sample.sample, prompt))
            for sample, prompt in scored
        )

    def scores(self, benchmark: PromptBenchmark, samples: Sequence[Sample]) -> tuple[Score, ...]:
        return (score(benchmark.default_metric, mean_score(samples), higher_is_better=True),)

    def answer_tokens(self, benchmark: PromptBenchmark, task: str) -> int:
        """Return 1, since a key is one token."""
        return 1

    def fills_length(self, benchmark: PromptBenchmark) -> bool:
        """Return True: held-out text always fills the length."""
        return True

    def sample_tokens(self, benchmark: PromptBenchmark, task: str, eval_length: int) -> int:
        return eval_length
