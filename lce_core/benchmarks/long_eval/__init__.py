"""LongEval lines: the model retrieves the number of one line from as many lines as fit the length.

A line reads "line ADJECTIVE-NOUN: REGISTER_CONTENT is <NUMBER>" with a number from 1 to 50000. The
prompt ends with the start of the requested line, so that base models continue it with the number.
Like LongChat, `faithful` requests a random line and scores the last integer of 15 generated tokens.
`clean` and `fast` request lines at stratified positions and score the first integer.

With LongChat's published prompts (data set `long_eval`), `faithful` uses the file with the most
lines that fits the length. If it fills less than 95 % of the length, the cell is unavailable.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import model_validator

from lce_core.benchmarks import (
    CellData,
    CellRequest,
    DataSet,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    Sampled,
    Source,
    calls,
    marking,
    strata,
)
from lce_core.benchmarks.long_eval.lines import (
    NEW_TOKENS,
    PUBLISHED,
    PUBLISHED_CASES,
    generated_prompts,
    line_tokens,
    line_words,
    published_prompts,
    words_digest,
)
from lce_core.errors import SpecError
from lce_core.evaluation.metrics import first_integer, has_complete_integer, last_integer


class LongEval(Sampled):
    """LongEval lines: the score is the fraction of prompts answered with the line's number."""

    data_on_demand = (PUBLISHED,)
    profiles = {
        "faithful": Profile(
            "50 random lines, or LongChat's published prompts if the data set `long_eval` is given;"
            " scores the last integer of the answer",
            num_samples=50,
        ),
        "clean": Profile(
            "100 lines at stratified depths; scores the first integer", num_samples=100
        ),
        "fast": Profile("clean with 50 lines", num_samples=50),
        "tiny": Profile(
            "120 prompts with a key token of every family, for base models with key tokens",
            num_samples=120,
            keys=KeyTask(num_distractors=None),
        ),
    }
    answer_tokens = NEW_TOKENS
    otherwise = "set cases: generated, which fills any length"

    cases: Literal["generated", "published"] | None = None
    """Use generated prompts or LongChat's published ones; None means published in faithful without
    `num_samples` if `data_folders` contains `long_eval`, else generated."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> LongEval:
        if self.cases == "published" and not self.in_words:
            self.refuse(["cases: published"])
        if self.cases == "published" and self.num_samples is not None:
            raise SpecError(
                "num_samples",
                f"{self.num_samples} with cases: published, whose files have 50 prompts each",
                "num_samples only with cases: generated",
                "omit num_samples",
            )
        return self

    def tasks(self) -> tuple[str, ...]:
        return ("lines",)

    def num_prompts(self, task: str) -> int:
        return PUBLISHED_CASES if self.cases == "published" else super().num_prompts(task)

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (PUBLISHED,) if self.cases == "published" else ()

    def data_samples(self, cell: CellData) -> int | None:
        return PUBLISHED_CASES if self.cases == "published" else None

    def data_names(self, task: str, data_folders: Mapping[str, Path]) -> tuple[str, ...]:
        read = (PUBLISHED,) if self._reads_published(data_folders) else ()
        return tuple(data_set.recorded_name(data_folders) for data_set in read)

    def digest(self, task: str, data_folders: Mapping[str, Path]) -> str | None:
        """Return the sha256 of the published files, or of the words in generated lines."""
        if self._reads_published(data_folders):
            return PUBLISHED.digest(data_folders)
        return words_digest() if self.in_words else None

    def build(self, request: CellRequest) -> list[Prompt]:
        if self._reads_published(request.data_folders):
            return published_prompts(request)
        draws = self.draws(request)
        depths = strata(draws, 100)
        if self.profile == "faithful":
            depths = [100 * rng.random() for rng in draws]
        return generated_prompts(request, line_words(), depths, draws)

    def slack_tokens(self, request: CellRequest) -> int:
        """Return the mean tokens of a line, by which generated prompts grow."""
        return 0 if self._reads_published(request.data_folders) else line_tokens(request)

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        integer = last_integer if self.profile == "faithful" else first_integer
        return float(integer(answer) == int(prompt.reference))

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return self.profile != "faithful" and has_complete_integer(answer)

    def _reads_published(self, folders: Mapping[str, Path]) -> bool:
        if self.cases is None:
            generates = self.profile != "faithful" or self.num_samples is not None
            return not generates and PUBLISHED.name in folders
        return self.cases == "published"


BENCHMARK = LongEval
SOURCE = Source(
    paper="arXiv:2405.14591",
    place="Table 4 (Long-eval); task: lmsys.org/blog/2023-06-29-longchat",
    reference="https://github.com/DachengLi1/LongChat/tree/4b5faa5",
    differs="generated prompts have as many lines as fit, with distinct keys; all profiles use the"
    " prompt for base models",
)
EVIDENCE = tuple(
    calls(LongEval.score_answer, score, origin, **marking("lines", "2416", answer, profile=profile))
    for profile, answer, score, origin in (
        ("faithful", " <2416>. Line 7", 0.0, "LongChat's rule: the last integer"),
        ("faithful", " Line 7: <2416>", 1.0, "LongChat's rule: the last integer"),
        ("clean", " <2416>. Line 7", 1.0, "the first integer is the line's"),
        ("clean", " Line 7: <2416>", 0.0, "the first integer is the line's number"),
    )
)
EXAMPLES: Examples = ({"num_samples": 6}, {"cases": "published"})
VERSION = 2
