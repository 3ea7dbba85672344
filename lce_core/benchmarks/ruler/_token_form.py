"""RULER's profile `tiny`, for toy models that cannot copy numbers: they retrieve single key tokens.

The difficulty of five tasks comes from the haystack, the distractors and the number of queries,
which single tokens preserve. The other tasks need uuids, several values per key, chains or counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lce_core.benchmarks import CellRequest, KeyForm, Prompt, PromptBenchmark, Sample, encode
from lce_core.benchmarks._prompted.retrieval import Stream, key_prompts, key_samples
from lce_core.benchmarks.ruler._drafts import NOISE
from lce_core.errors import SpecError
from lce_core.models import LanguageModel

_OF_TEXTS = {"haystack", "questions", "sizes", "permutations"}
"""Parameters of RULER's natural-language prompts, which the profile `tiny` refuses."""


@dataclass(frozen=True)
class KeyTask:
    """Settings of one task with key tokens."""

    noise: bool
    """True repeats RULER's noise sentences as haystack; False uses held-out text."""
    num_distractors: int
    """Number of keys in the text besides the one that the first query asks for."""
    num_queries: int = 1
    """Number of keys that a sample queries, each with a separate prompt."""


KEY_TASKS = {
    "niah_single_1": KeyTask(noise=True, num_distractors=0),
    "niah_single_2": KeyTask(noise=False, num_distractors=0),
    "niah_multikey_1": KeyTask(noise=False, num_distractors=3),
    "niah_multikey_2": KeyTask(noise=True, num_distractors=7),
    "niah_multiquery": KeyTask(noise=False, num_distractors=3, num_queries=4),
}


@dataclass(frozen=True)
class RulerKeys(KeyForm):
    """A profile that hides key tokens in RULER's haystacks; a sample has one prompt per query."""

    def check(self, benchmark: Any) -> None:
        if refused := ", ".join(sorted(_OF_TEXTS & benchmark.model_fields_set)):
            raise SpecError(
                "profile",
                f"tiny with {refused}, which only affect prompts in words",
                "no parameter except num_samples in profile tiny",
                f"omit {refused}, or choose another profile",
            )

    def distractors(self, base_model: LanguageModel, task: str) -> int:
        return KEY_TASKS[task].num_distractors

    def excerpt_tokens(self, base_model: LanguageModel, task: str, eval_length: int) -> int:
        return 0 if KEY_TASKS[task].noise else super().excerpt_tokens(base_model, task, eval_length)

    def build(self, benchmark: PromptBenchmark, request: CellRequest) -> list[Prompt]:
        """Build one prompt per sample and query; the prompts of a sample differ in the last token.

        The key of a sample's first query is at a depth from `depths`, the others at random places.
        """
        task = KEY_TASKS[request.task]
        draws = benchmark.draws(request)
        depths = self.depths(draws)
        streams = [_noise(request)] if task.noise else None
        first = key_prompts(request, task.num_distractors, depths, draws, streams)
        if task.num_queries == 1:
            return first
        return [query for prompt in first for query in _all_queries(request, prompt)]

    def samples(
        self, benchmark: PromptBenchmark, request: CellRequest, prompts: Sequence[Prompt]
    ) -> tuple[Sample, ...]:
        """Score a sample by the fraction of its right keys."""
        queries = self.num_queries(request.task)
        found = key_samples(request, prompts)
        groups = (found[first : first + queries] for first in range(0, len(found), queries))
        return tuple(_joined(index, group) for index, group in enumerate(groups))

    def sample_tokens(self, benchmark: PromptBenchmark, task: str, eval_length: int) -> int:
        return self.num_queries(task) * eval_length

    def num_queries(self, task: str) -> int:
        return KEY_TASKS[task].num_queries


def _all_queries(request: CellRequest, prompt: Prompt) -> list[Prompt]:
    keys = request.base_model.keys
    assert keys is not None, "unavailable() refuses base models without keys"
    body, first_query = prompt.ids[:-1], prompt.ids[-1]
    hidden = np.flatnonzero((body >= keys.first_key) & (body < keys.first_query))
    found = [prompt]
    for place in hidden:
        query = keys.first_query + (body[place] - keys.first_key) // keys.members
        if query != first_query:
            name = str(request.tokenizer.convert_ids_to_tokens(int(body[place])))
            depth = 100 * float(place) / len(body)
            found.append(Prompt(np.append(body, query), name, depth))
    return found


def _joined(index: int, group: Sequence[Sample]) -> Sample:
    if len(group) == 1:
        return replace(group[0], sample=index)
    depths = [sample.depth for sample in group if sample.depth is not None]
    return Sample(
        index,
        group[0].num_prompt_tokens,
        float(np.mean([sample.score for sample in group])),
        float(np.mean(depths)),
        " | ".join(str(sample.prediction) for sample in group),
        " | ".join(str(sample.reference) for sample in group),
    )


def _noise(request: CellRequest) -> Stream:
    line = encode(request, f"{NOISE}\n", special_tokens=False)
    return np.array(line * (1 + 2 * request.eval_length // len(line)), dtype=np.uint32)
