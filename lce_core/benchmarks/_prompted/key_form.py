"""Profile of retrieval benchmarks for toy models: the model retrieves one token from a text.

The vocabulary of such a model has families of key tokens and one query token per family. A prompt
is text with one inserted key token of each of several families, followed by the query token of one
of these families. The right answer is the inserted key token of this family.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from lce_core.benchmarks._base import CellRequest, Sample, Score, score
from lce_core.benchmarks._prompted.benchmark import PromptBenchmark, PromptForm, mean_score, strata
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    key_prompts,
    key_samples,
    key_task_reason,
    key_text_tokens,
)
from lce_core.benchmarks._prompted.wordings import key_frame
from lce_core.models import LanguageModel


@dataclass(frozen=True)
class KeyForm(PromptForm):
    """A profile whose prompts hide key tokens in held-out text and ask for one of them."""

    in_words: ClassVar[bool] = False
    num_distractors: int = 0
    """Number of key tokens in the text besides the one that the prompt asks for."""

    def distractors(self, base_model: LanguageModel, task: str) -> int:
        return self.num_distractors

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        distractors = self.distractors(base_model, task)
        return key_task_reason(base_model, distractors, eval_length, key_frame(task))

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        distractors = self.distractors(base_model, task)
        return key_text_tokens(eval_length, distractors, *map(len, key_frame(task)))

    def prompts(self, benchmark: PromptBenchmark, request: CellRequest) -> tuple[Prompt, ...]:
        """Do not cache: building these prompts is cheap."""
        return tuple(self.build(benchmark, request))

    def build(self, benchmark: PromptBenchmark, request: CellRequest) -> Sequence[Prompt]:
        """Build the cell's prompts; `depths` places the key tokens that they ask for."""
        draws = benchmark.draws(request)
        distractors = self.distractors(request.base_model, request.task)
        frame = key_frame(request.task)
        return key_prompts(request, distractors, self.depths(draws), draws, frame=frame)

    def depths(self, draws: Sequence[np.random.Generator]) -> list[float]:
        """Draw the depth of each prompt's key in per cent, one from each of equal intervals."""
        return strata(draws, 100)

    def samples(
        self, benchmark: PromptBenchmark, request: CellRequest, prompts: Sequence[Prompt]
    ) -> tuple[Sample, ...]:
        scored = zip(key_samples(request, prompts), prompts, strict=True)
        return tuple(
            replace(sample, cluster=benchmark.cluster(sample.sample, prompt))
            for sample, prompt in scored
        )

    def scores(self, benchmark: PromptBenchmark, samples: Sequence[Sample]) -> tuple[Score, ...]:
        return (score(benchmark.default_metric, mean_score(samples), higher_is_better=True),)

    def answer_tokens(self, benchmark: PromptBenchmark, task: str) -> int:
        return 1

    def fills_length(self, benchmark: PromptBenchmark) -> bool:
        return True

    def sample_tokens(self, benchmark: PromptBenchmark, task: str, eval_length: int) -> int:
        return eval_length
