"""Needle in a haystack: the model finds one sentence (the needle) at ten depths of a long text.

The profiles `faithful`, `clean` and `fast` hide LCEG's needle in essays or held-out text, with
LCEG's prompt. `word_overlap` is LCEG's figure: the number of distinct expected words in the answer,
divided by the number of words of the expected sentence; one of LCEG's 12 words occurs twice, so the
maximum is 11/12. `rouge_1` is the ROUGE-1 F score of the answer against the whole needle, which
LCEG stores times ten; the expected words alone reach 8/11. `exact_match` is 1 if the answer
contains the expected phrase. `accuracy` repeats word_overlap in `faithful` and exact_match
otherwise.

`faithful` cuts the haystack from the start of the essays, and reproduces the BOS leak of LCEG's
script: a BOS token that the tokenizer adds to every text occurs four times in the prompt, once at
the start, twice before the haystack and once before the needle. In `clean` and `fast` each trial
has its own needle and haystack, and no leak.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field, model_validator

from lce_core.benchmarks import (
    ESSAYS,
    WORDINGS,
    CellData,
    CellRequest,
    DataSet,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    Sample,
    Score,
    Sequences,
    Source,
    Worded,
    calls,
    generator,
    marking,
    score,
)
from lce_core.benchmarks.needle.text import (
    FACTS,
    NEW_TOKENS,
    RESERVED_TOKENS,
    essay_tokens,
    expected_tokens,
    held_out_tokens,
    needle_prompt,
    require_leak,
)
from lce_core.evaluation.metrics import contains, rouge_1, word_overlap
from lce_core.statistics.estimates import bootstrap_mean, wilson

DEPTHS = (0, 11, 22, 33, 44, 56, 67, 78, 89, 100)
"""Positions of the needle in per cent of the context: ten, evenly spaced and rounded."""
_FACT_OF = {fact.answer: fact for fact in FACTS}


class Needle(Worded):
    """Needle in a haystack: the score is the fraction of needles found, over a grid of depths."""

    profiles = {
        "faithful": Profile(
            "LCEG's prompt with its BOS leak; one trial per depth in text from the start of the"
            " essays; score: word overlap (at most 11/12)",
            trials=1,
            needles=1,
            bos_leak=True,
        ),
        "clean": Profile(
            "LCEG's prompt without the leak; five trials per depth, each with its own needle and"
            " random excerpt; score: exact match",
            trials=5,
        ),
        "fast": Profile("clean with two trials per depth", trials=2),
        "tiny": Profile(
            "one key token in held-out text, for base models with key tokens",
            trials=5,
            keys=KeyTask(),
        ),
    }
    answer_tokens = NEW_TOKENS

    haystack: Literal["essays", "held_out"] | None = None
    """Text around the needle; None means essays, or held-out text in profile tiny."""
    trials: int | None = Field(default=None, gt=0)
    """Prompts per depth; None means 1 (faithful), 5 (clean), 2 (fast), 5 (tiny)."""
    needles: int | None = Field(default=None, gt=0, le=len(FACTS))
    """Number of different needles, which the trials use in turn; None means 1 (faithful), 5 (clean,
    fast)."""
    bos_leak: bool | None = None
    """Keep beginning-of-sequence tokens inside the prompt, as LCEG's script does; None: only in
    faithful."""

    @model_validator(mode="after")
    def _settings_have_effect(self) -> Needle:
        if not self.in_words:
            text = ["haystack: essays"] if self.haystack == "essays" else []
            self.refuse(text + [name for name in ("needles", "bos_leak") if getattr(self, name)])
        return self

    def num_prompts(self, task: str) -> int:
        return len(DEPTHS) * int(self.setting("trials"))

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        return max(1, eval_length - NEW_TOKENS)

    def distinct_share(self, task: str, prompt_tokens: float) -> float:
        """Return the fraction (0..1) of tokens to compute if a trial's prompts share prefixes.

        Every prompt reuses the tokens of the deepest needle's prompt before its own needle.
        """
        if not self.in_words:
            return 1.0
        *shallower, _ = sorted(DEPTHS)
        return (1 + sum(1 - depth / 100 for depth in shallower)) / len(DEPTHS)

    def slack_tokens(self, request: CellRequest) -> int:
        """Return the 200 tokens of the length that LCEG's script does not fill with haystack."""
        return RESERVED_TOKENS

    def data_sequences(self, cell: CellData) -> Sequences | None:
        if not self._reads_essays():
            return None
        expected = expected_tokens(cell.base_model, cell.eval_length)
        return Sequences({expected: self.num_prompts(cell.task)})

    def reads(self, task: str) -> tuple[DataSet, ...]:
        return (ESSAYS,) if self._reads_essays() else ()

    def reads_held_out(self, task: str) -> bool:
        return not self._reads_essays()

    def key_prompts(self, request: CellRequest, task: KeyTask) -> list[Prompt]:
        grid = [(depth, trial) for depth in DEPTHS for trial in range(self.setting("trials"))]
        draws = [self._draw(request, depth, trial) for depth, trial in grid]
        return task.prompts(request, [depth for depth, _ in grid], draws)

    def build(self, request: CellRequest) -> list[Prompt]:
        trials = range(self.setting("trials"))
        # A trial uses one haystack for all depths, so that only the depth differs.
        haystacks = self._haystacks(request, [self._draw(request, trial) for trial in trials])
        leak, facts = bool(self.setting("bos_leak")), FACTS[: self.setting("needles")]
        if self.bos_leak:
            require_leak(request)
        return [
            needle_prompt(
                request, facts[trial % len(facts)], haystacks[trial], depth, bos_leak=leak
            )
            for depth in DEPTHS
            for trial in trials
        ]

    def _draw(self, request: CellRequest, *place: int) -> np.random.Generator:
        return generator("needle", WORDINGS[0], request.eval_length, request.seed, *place)

    def _reads_essays(self) -> bool:
        return self.in_words and self.haystack != "held_out"

    def _haystacks(self, request: CellRequest, draws: list[np.random.Generator]) -> list[list[int]]:
        if not self._reads_essays():
            return held_out_tokens(request, draws)
        tokens = essay_tokens(request)
        if self.profile == "faithful":
            return [tokens] * len(draws)
        starts = [int(rng.integers(len(tokens))) for rng in draws]
        return [tokens[start:] + tokens[:start] for start in starts]

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return _scores_of(prompt.reference, answer)[self._own_metric()]

    def scores(self, samples: Sequence[Sample]) -> tuple[Score, ...]:
        if not self.in_words:
            return super().scores(samples)
        each = [_scores_of(str(one.reference), str(one.prediction)) for one in samples]
        metrics = {
            "word_overlap": bootstrap_mean([one["word_overlap"] for one in each]),
            "rouge_1": bootstrap_mean([one["rouge_1"] for one in each]),
            "exact_match": wilson(int(sum(one["exact_match"] for one in each)), len(each)),
        }
        shown = {"accuracy": metrics[self._own_metric()], **metrics}
        return tuple(score(name, value, higher_is_better=True) for name, value in shown.items())

    def _own_metric(self) -> str:
        return "word_overlap" if self.profile == "faithful" else "exact_match"


def needle_rouge(reference: str, answer: str) -> float:
    return rouge_1(answer, _FACT_OF[reference].needle)


def _scores_of(reference: str, answer: str) -> dict[str, float]:
    return {
        "word_overlap": word_overlap(answer, reference),
        "rouge_1": needle_rouge(reference, answer),
        "exact_match": contains(answer, _FACT_OF[reference].phrase),
    }


BENCHMARK = Needle
SOURCE = Source(
    paper="arXiv:2409.12181",
    place="Figures 1 and 5, Table 1 (Needle)",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="essays are joined in the order of their names instead of the file system's; the length"
    " always includes the answer's tokens",
)
EVIDENCE = (
    *(
        calls(
            Needle.score_answer,
            score,
            origin,
            **marking("single", FACTS[0].answer, answer, profile=profile),
        )
        for profile, answer, score, origin in (
            (
                "faithful",
                "eat a sandwich and sit in Dolores Park on a sunny day.",
                11 / 12,
                "maximum of LCEG's figure: 12 words, 11 distinct",
            ),
            ("faithful", "Paris", 0.0, "no word in common"),
            ("clean", " Eat a sandwich and sit\nin Dolores Park.", 1.0, "the phrase is there"),
            ("clean", "Paris", 0.0, "the phrase is missing"),
        )
    ),
    calls(
        needle_rouge,
        8 / 11,
        "12 words of the needle's 21 in an answer of 12: 2 x 12 / 33, counted by hand",
        reference="eat a sandwich and sit in Dolores Park on a sunny day.",
        answer="Eating a sandwich and sitting in Dolores Park on a sunny day",
    ),
)
EXAMPLES: Examples = ({"trials": 1}, {"trials": 1, "haystack": "held_out"})
VERSION = 3
