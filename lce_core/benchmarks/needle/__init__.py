"""Needle in a haystack: one fact at each of ten depths of a long text.

Text form (profiles `faithful`, `clean`, `fast`): LCEG's prompt and needle over essays or held-out
text. Two scores: `word_overlap`, LCEG's figure (distinct expected words in the answer over the
expected sentence's words; of LCEG's 12 one occurs twice, so its best is 11/12), and `exact_match`,
the expected phrase as a substring. `accuracy`, by which cells are shown, is word_overlap in
`faithful` and exact_match otherwise. `faithful` has one trial a depth, the haystack from its
beginning, and the BOS leak of LCEG's script; `clean` five trials from random places, each with a
needle of its own, and no leak; `fast` two.

Token form (profile `tiny`, for base models with key tokens): held-out text with a single key token,
then the query token of its family; the next token must be the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from lce_core.benchmarks import Benchmark, CellRequest, CellResult, Profile, Sample, Score, score
from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks._essays import ESSAYS
from lce_core.benchmarks._prompted.cache import cell_prompts
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    generator,
    key_prompts,
    key_samples,
    key_task_reason,
    text_answers,
)
from lce_core.benchmarks.needle.text import (
    FACTS,
    NEW_TOKENS,
    Fact,
    essay_tokens,
    expected_tokens,
    held_out_tokens,
    needle_prompt,
)
from lce_core.data.sequences import Sequences
from lce_core.evaluation.metrics import contains, word_overlap
from lce_core.evaluation.stats import bootstrap_mean, wilson
from lce_core.evidence import calls
from lce_core.models import LanguageModel
from lce_core.registry import Source

DEPTHS = (0, 11, 22, 33, 44, 56, 67, 78, 89, 100)
"""Per cent of the context; ten even steps, rounded."""
_TRIALS = {"faithful": 1, "clean": 5, "fast": 2, "tiny": 5}


class Needle(Benchmark):
    """Share of needles that are found, over a grid of depths."""

    unit: ClassVar[Literal["accuracy"]] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    forms: ClassVar[Mapping[Profile, str]] = {
        "faithful": "LCEG's prompt, one trial a depth, essays from their beginning, BOS leak, word"
        " overlap (at most 11/12)",
        "clean": "the same prompt, five needles, each from a random place of the text, no leak,"
        " exact match",
        "fast": "as clean with two needles",
        "tiny": "one key token in held-out text, for base models with key tokens",
    }

    haystack: Literal["essays", "held_out"] | None = None
    """Text around the needle; None: essays, and held-out text in profile tiny."""
    trials: int | None = Field(default=None, gt=0)
    """Prompts at each depth; None: 1 (faithful), 5 (clean), 2 (fast), 5 (tiny)."""
    needles: int | None = Field(default=None, gt=0, le=len(FACTS))
    """Different needles, which the trials take in turn; None: 1 (faithful), 5 (clean, fast)."""
    bos_leak: bool | None = None
    """Beginning-of-sequence tokens inside the prompt; None: as the profile says."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> Needle:
        if self.profile == "tiny" and (self.haystack == "essays" or self.bos_leak or self.needles):
            raise ValueError(
                "profile tiny hides keys in held-out text: no essays, no needles and no bos_leak"
            )
        return self

    def tasks(self) -> tuple[str, ...]:
        """One task."""
        return ("single",)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """A tiny cell without key tokens or without room."""
        if self.profile == "tiny":
            return key_task_reason(base_model, 0, eval_length)
        return None

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Prompts times their length, which leaves room for the answer."""
        room = 0 if self.profile == "tiny" else NEW_TOKENS
        return len(DEPTHS) * self._trials() * max(1, eval_length - room)

    def data_sequences(
        self,
        base_model: LanguageModel,
        task: str,
        eval_length: int,
        data_folders: Mapping[str, Path],
    ) -> Sequences | None:
        """Prompts of essays, estimated from the bytes around them."""
        if not self._reads_essays():
            return None
        return Sequences({expected_tokens(base_model, eval_length): len(DEPTHS) * self._trials()})

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """The essays where they are the haystack."""
        return (ESSAYS,) if self._reads_essays() else ()

    def evaluate(self, request: CellRequest) -> CellResult:
        """Asks for the needle at every depth."""
        prompts = self.prompts(request)
        if self.profile == "tiny":
            samples = key_samples(request, prompts)
            scores: tuple[Score, ...] = (_accuracy("accuracy", samples),)
        else:
            answers = text_answers(request, prompts, max_new_tokens=NEW_TOKENS)
            samples, scores = self._scored(prompts, answers)
        return CellResult(
            scores=scores,
            samples=samples,
            sequences=Sequences.of(sample.num_prompt_tokens for sample in samples),
        )

    def prompts(self, request: CellRequest) -> tuple[Prompt, ...]:
        """All prompts of the cell, depth by depth.

        Raises:
          UnavailableError: the length cannot hold the task, or the haystack is not there.
        """
        return cell_prompts(
            self,
            request,
            lambda: self._built(request),
            Prompt,
            reads_held_out=not self._reads_essays(),
        )

    def _built(self, request: CellRequest) -> list[Prompt]:
        place = ("needle", request.task, request.eval_length, request.seed)
        grid = [(depth, trial) for depth in DEPTHS for trial in range(self._trials())]
        if self.profile == "tiny":
            draws = [generator(*place, depth, trial) for depth, trial in grid]
            return key_prompts(request, 0, [depth for depth, _ in grid], draws)
        # A trial has one haystack for all depths, so that depth is all that differs.
        draws = [generator(*place, trial) for trial in range(self._trials())]
        haystacks = self._haystacks(request, draws)
        leak = self.profile == "faithful" if self.bos_leak is None else self.bos_leak
        return [
            needle_prompt(request, self._fact(trial), haystacks[trial], depth, bos_leak=leak)
            for depth, trial in grid
        ]

    def _reads_essays(self) -> bool:
        return self.profile != "tiny" and self.haystack != "held_out"

    def _haystacks(self, request: CellRequest, draws: list[np.random.Generator]) -> list[list[int]]:
        if not self._reads_essays():
            return held_out_tokens(request, draws)
        essays = essay_tokens(request)
        if self.profile == "faithful":
            return [essays] * len(draws)
        starts = [int(rng.integers(len(essays))) for rng in draws]
        return [essays[start:] + essays[:start] for start in starts]

    def _scored(
        self, prompts: Sequence[Prompt], answers: list[str]
    ) -> tuple[tuple[Sample, ...], tuple[Score, ...]]:
        facts = [self._fact(index % self._trials()) for index in range(len(prompts))]
        pairs = list(zip(answers, facts, strict=True))
        overlaps = [word_overlap(answer, fact.answer) for answer, fact in pairs]
        exact = [contains(answer, fact.phrase) for answer, fact in pairs]
        main = overlaps if self.profile == "faithful" else exact
        rows = enumerate(zip(prompts, answers, main, strict=True))
        samples = tuple(
            Sample(index, len(prompt.ids), value, prompt.depth, answer, prompt.reference)
            for index, (prompt, answer, value) in rows
        )
        overlap = bootstrap_mean(overlaps)
        found = wilson(int(sum(exact)), len(exact))
        return samples, (
            score("accuracy", overlap if main is overlaps else found, higher_is_better=True),
            score("word_overlap", overlap, higher_is_better=True),
            score("exact_match", found, higher_is_better=True),
        )

    def _fact(self, trial: int) -> Fact:
        needles = self.needles or (1 if self.profile == "faithful" else len(FACTS))
        return FACTS[trial % needles]

    def _trials(self) -> int:
        return self.trials or _TRIALS[self.profile]


def _accuracy(metric: str, samples: tuple[Sample, ...]) -> Score:
    right = wilson(int(sum(sample.score for sample in samples)), len(samples))
    return score(metric, right, higher_is_better=True)


BENCHMARK = Needle
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="Figures 1 and 5, Table 1 (Needle)",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="essays are joined in the order of their names, not of the file system; the answer's"
    " tokens are always kept free",
)
EVIDENCE = (
    calls(
        word_overlap,
        11 / 12,
        "maximum of LCEG's figure: 12 words, 11 distinct",
        answer=FACTS[0].answer,
        expected=FACTS[0].answer,
    ),
    calls(word_overlap, 0.0, "no word in common", answer="Paris", expected=FACTS[0].answer),
    calls(contains, 1.0, "gold answer", answer=f" {FACTS[0].answer}\n", expected=FACTS[0].phrase),
)
VERSION = 2
