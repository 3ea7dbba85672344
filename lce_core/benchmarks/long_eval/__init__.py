"""LongEval lines: find the number of one line among as many lines as the context holds.

A line reads "line ADJECTIVE-NOUN: REGISTER_CONTENT is <NUMBER>", numbers 1 to 50000; the prompt
ends with the beginning of the asked line, which base models continue. `faithful` draws the asked
line anywhere and scores the last integer of 15 tokens, as LongChat does; `clean` and `fast` ask
lines of all depths in strata and score the first integer, which a model that runs on cannot spoil.

Published cases (a folder `long_eval` with LongChat's 200_lines.jsonl and so on) are what `faithful`
asks where that folder is given: those of the largest number of lines that fits the length.

Token form (profile `tiny`, for base models with key tokens): a key of every family hidden in
held-out text, then the query of one of them; the next token must be its key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from lce_core.benchmarks import Benchmark, CellRequest, CellResult, Profile, Sample, score
from lce_core.benchmarks._data import DataSet
from lce_core.benchmarks._prompted.cache import cell_prompts
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    generator,
    key_prompts,
    key_samples,
    key_task_reason,
    text_answers,
)
from lce_core.benchmarks.long_eval.lines import (
    NEW_TOKENS,
    PUBLISHED,
    generated_prompts,
    line_words,
    published_prompts,
    words_digest,
)
from lce_core.data.sequences import Sequences
from lce_core.evaluation.metrics import first_integer, has_complete_integer, last_integer
from lce_core.evaluation.stats import wilson
from lce_core.evidence import calls
from lce_core.models import LanguageModel
from lce_core.registry import Source

_NUM_SAMPLES = {"faithful": 50, "clean": 100, "fast": 50, "tiny": 120}


class LongEval(Benchmark):
    """Share of lines whose number is found."""

    unit: ClassVar[Literal["accuracy"]] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    data_on_demand: ClassVar[tuple[DataSet, ...]] = (PUBLISHED,)
    forms: ClassVar[Mapping[Profile, str]] = {
        "faithful": "50 lines drawn anywhere, last integer of 15 tokens; the published cases where"
        " the folder `long_eval` is given",
        "clean": "100 lines over strata of depth, first integer",
        "fast": "as clean with 50 lines",
        "tiny": "120 prompts with a key token of every family, for base models that have them",
    }

    num_samples: int | None = Field(default=None, gt=0)
    """Generated prompts of a cell; None: 50 (faithful, fast), 100 (clean), 120 (tiny)."""
    cases: Literal["generated", "published"] | None = None
    """Whose lines; None: generated, and in faithful published where their folder is given."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> LongEval:
        if self.cases == "published" and self.profile == "tiny":
            raise ValueError("profile tiny hides keys in held-out text: no published cases")
        if self.cases == "published" and self.num_samples is not None:
            raise ValueError("published cases come 50 a file: no num_samples")
        return self

    def tasks(self) -> tuple[str, ...]:
        """One task."""
        return ("lines",)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """A tiny cell without key tokens or without room."""
        if self.profile == "tiny":
            return key_task_reason(base_model, _num_distractors(base_model), eval_length)
        return None

    def reads(self, task: str) -> tuple[DataSet, ...]:
        """The published cases where they are asked for."""
        return (PUBLISHED,) if self.cases == "published" else ()

    def digest(self, task: str, data_folders: Mapping[str, Path]) -> str | None:
        """sha256 of the published cases, or of the words that lines are made of."""
        if self.profile == "tiny":
            return None
        if self._reads_published(data_folders):
            return PUBLISHED.digest(data_folders)
        return words_digest()

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Prompts times their length."""
        return (50 if self.cases == "published" else self._num_samples()) * eval_length

    def evaluate(self, request: CellRequest) -> CellResult:
        """Asks for every number."""
        prompts = self.prompts(request)
        samples = (
            key_samples(request, prompts)
            if self.profile == "tiny"
            else self.scored(prompts, self._answers(request, prompts))
        )
        right = wilson(int(sum(sample.score for sample in samples)), len(samples))
        return CellResult(
            scores=(score("accuracy", right, higher_is_better=True),),
            samples=samples,
            sequences=Sequences.of(sample.num_prompt_tokens for sample in samples),
        )

    def prompts(self, request: CellRequest) -> tuple[Prompt, ...]:
        """All prompts of the cell.

        Raises:
          UnavailableError: the length cannot hold two lines, or no published case; says the
            minimum.
          DataError: published cases that are not as published; names file, row and column.
        """
        return cell_prompts(self, request, lambda: self._built(request), Prompt)

    def _built(self, request: CellRequest) -> list[Prompt]:
        if self.profile != "tiny" and self._reads_published(request.data_folders):
            return published_prompts(request)
        place = ("long_eval", request.task, request.eval_length, request.seed)
        count = self._num_samples()
        draws = [generator(*place, index) for index in range(count)]
        depths = [100 * (index + rng.random()) / count for index, rng in enumerate(draws)]
        if self.profile == "tiny":
            return key_prompts(request, _num_distractors(request.base_model), depths, draws)
        if self.profile == "faithful":
            depths = [100 * rng.random() for rng in draws]
        return generated_prompts(request, line_words(), depths, draws)

    def scored(self, prompts: Sequence[Prompt], answers: list[str]) -> tuple[Sample, ...]:
        """Scores continuations: 1 where the integer that counts is the line's."""
        integer = last_integer if self.profile == "faithful" else first_integer
        return tuple(
            Sample(
                index,
                len(prompt.ids),
                float(integer(answer) == int(prompt.reference)),
                prompt.depth,
                answer,
                prompt.reference,
            )
            for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
        )

    def _answers(self, request: CellRequest, prompts: Sequence[Prompt]) -> list[str]:
        # The last integer of an answer is known at its end only.
        final = (lambda _: False) if self.profile == "faithful" else has_complete_integer
        return text_answers(request, prompts, max_new_tokens=NEW_TOKENS, complete=final)

    def _reads_published(self, folders: Mapping[str, Path]) -> bool:
        if self.cases is None:
            return self.profile == "faithful" and PUBLISHED.name in folders
        return self.cases == "published"

    def _num_samples(self) -> int:
        return self.num_samples or _NUM_SAMPLES[self.profile]


def _num_distractors(base_model: LanguageModel) -> int:
    return base_model.keys.families - 1 if base_model.keys else 0


BENCHMARK = LongEval
SOURCE = Source(
    paper="arXiv:2405.14591",
    place="Table 4 (Long-eval); task: lmsys.org/blog/2023-06-29-longchat",
    reference="https://github.com/DachengLi1/LongChat/tree/4b5faa5",
    differs="the number of lines follows from the length; generated keys are all distinct; the"
    " prompt is the one for base models in every profile",
)
EVIDENCE = (
    calls(last_integer, 7, "LongChat's rule: the last", text=" <2416>. Line 7"),
    calls(first_integer, 2416, "first-integer rule", text=" <2416>. Line 7"),
)
VERSION = 1
