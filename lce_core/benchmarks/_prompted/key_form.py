"""A profile that asks for key tokens: the form of retrieval that a toy model can learn.

A base model with key tokens has families of keys and a query token for each family. A prompt is
text with keys of distinct families in it, and the query of one of them; the next token must be its
key.
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
    """Keys hidden in held-out text at depths in strata, the first of them asked for."""

    in_words: ClassVar[bool] = False
    num_distractors: int = 0
    """Keys of other families in the same text."""

    def distractors(self, base_model: LanguageModel, task: str) -> int:
        """Keys beside the asked one."""
        return self.num_distractors

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """No key tokens, too few families, or no room."""
        return key_task_reason(base_model, self.distractors(base_model, task), eval_length)

    def prompts(self, benchmark: PromptBenchmark, request: CellRequest) -> tuple[Prompt, ...]:
        """All prompts of the cell, built each time: keys are cheap to place."""
        return tuple(self.build(benchmark, request))

    def build(self, benchmark: PromptBenchmark, request: CellRequest) -> Sequence[Prompt]:
        """Prompts whose depths are spread evenly.

        Raises:
          UnavailableError: too little held-out text.
        """
        draws = benchmark.draws(request)
        distractors = self.distractors(request.base_model, request.task)
        return key_prompts(request, distractors, self.depths(draws), draws)

    def depths(self, draws: Sequence[np.random.Generator]) -> list[float]:
        """Where the asked key of each prompt lies, in per cent."""
        return strata(draws, 100)

    def samples(
        self, benchmark: PromptBenchmark, request: CellRequest, prompts: Sequence[Prompt]
    ) -> tuple[Sample, ...]:
        """Asks for one token after each prompt; 1 where it is the key."""
        asked = zip(key_samples(request, prompts), prompts, strict=True)
        return tuple(
            replace(sample, cluster=benchmark.cluster(sample.sample, prompt))
            for sample, prompt in asked
        )

    def scores(self, benchmark: PromptBenchmark, samples: Sequence[Sample]) -> tuple[Score, ...]:
        """The share of keys that are found."""
        return (score(benchmark.default_metric, mean_score(samples), higher_is_better=True),)

    def answer_tokens(self, benchmark: PromptBenchmark, task: str) -> int:
        """The key."""
        return 1

    def fills_length(self, benchmark: PromptBenchmark) -> bool:
        """Text fills the length, whatever the form in words does."""
        return True

    def sample_tokens(self, benchmark: PromptBenchmark, task: str, eval_length: int) -> int:
        """The whole length."""
        return eval_length
