"""Passkey retrieval: one key hidden in irrelevant text must be repeated after it.

Text form (profiles `faithful`, `clean`, `fast`): an instruction, garbage, the sentence with the
key, garbage, the question. The garbage is cut by characters so that prompt and answer fill the
cell's length in tokens. An answer is right if its first integer is the key; decoding stops once
that integer is complete. `faithful` draws keys from 1..50000, places them at random and grows the
garbage by 128 characters, as YaRN's script does; `clean` and `fast` use keys of five digits, strata
of depth, and fill the length to the character.

Token form (profile `tiny`, for base models with key tokens): held-out text with one key token and
three of other families, then the query token of the asked family; the next token must be the key.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field

from lce_core.benchmarks import Benchmark, CellRequest, CellResult, Profile, Sample, score
from lce_core.benchmarks._prompted.cache import cell_prompts
from lce_core.benchmarks._prompted.retrieval import (
    Prompt,
    encode,
    generator,
    key_prompts,
    key_samples,
    key_task_reason,
    text_answers,
)
from lce_core.data.sequences import Sequences
from lce_core.errors import UnavailableError
from lce_core.evaluation.metrics import first_integer, has_complete_integer
from lce_core.evaluation.stats import wilson
from lce_core.evidence import calls
from lce_core.models import LanguageModel
from lce_core.registry import Source

INSTRUCTION = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them."
    " I will quiz you about the important information there."
)
GARBAGE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
)
QUESTION = "What is the pass key? The pass key is"
NEW_TOKENS = 10
DISTRACTORS = 3
_NUM_SAMPLES = {"faithful": 50, "clean": 200, "fast": 100, "tiny": 120}
_MAX_CHARACTERS_PER_TOKEN = 64


class Passkey(Benchmark):
    """Share of keys that are found."""

    unit: ClassVar[Literal["accuracy"]] = "accuracy"
    seeded: ClassVar[bool] = True
    default_metric: ClassVar[str] = "accuracy"
    forms: ClassVar[Mapping[Profile, str]] = {
        "faithful": "50 keys of 1..50000 at random places, garbage grown by 128 characters",
        "clean": "200 keys of five digits over strata of depth, the length filled",
        "fast": "as clean with 100 keys",
        "tiny": "120 prompts with one key token and three distractors, for base models with key"
        " tokens",
    }

    num_samples: int | None = Field(default=None, gt=0)
    """Prompts of a cell; None: 50 (faithful), 200 (clean), 100 (fast), 120 (tiny)."""

    def tasks(self) -> tuple[str, ...]:
        """One task."""
        return ("single",)

    def unavailable(self, base_model: LanguageModel, task: str, eval_length: int) -> str | None:
        """A tiny cell without key tokens or without room."""
        if self.profile == "tiny":
            return key_task_reason(base_model, DISTRACTORS, eval_length)
        return None

    def num_tokens(self, task: str, eval_length: int, held_out_tokens: int) -> int:
        """Prompts times their length."""
        return self._num_samples() * eval_length

    def evaluate(self, request: CellRequest) -> CellResult:
        """Asks for every key."""
        prompts = self.prompts(request)
        samples = (
            key_samples(request, prompts)
            if self.profile == "tiny"
            else tuple(text_samples(prompts, self._answers(request, prompts)))
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
          UnavailableError: the length cannot hold the task; says the minimum.
        """
        return cell_prompts(self, request, lambda: self._built(request), Prompt)

    def _built(self, request: CellRequest) -> list[Prompt]:
        count = self._num_samples()
        draws = [
            generator("passkey", request.task, request.eval_length, request.seed, index)
            for index in range(count)
        ]
        strata = [(index + rng.random()) / count for index, rng in enumerate(draws)]
        if self.profile == "tiny":
            return key_prompts(request, DISTRACTORS, [100 * share for share in strata], draws)
        step = 128 if self.profile == "faithful" else 1
        most = _garbage_that_fits(request, step)
        return [
            self._text_prompt(request, most, step, share, rng)
            for share, rng in zip(strata, draws, strict=True)
        ]

    def _text_prompt(
        self, request: CellRequest, garbage: int, step: int, share: float, rng: np.random.Generator
    ) -> Prompt:
        if self.profile == "faithful":
            key, share = int(rng.integers(1, 50001)), rng.random()
        else:
            key = int(rng.integers(10000, 100000))
        # Where the garbage is cut may cost a token more than in the probe.
        while True:
            before = round(share * garbage)
            ids = encode(request, prompt_text(key, before, garbage - before))
            if len(ids) + NEW_TOKENS <= request.eval_length or garbage == 0:
                return Prompt(np.array(ids, dtype=np.int64), str(key), 100 * share)
            garbage = max(0, garbage - step)

    def _answers(self, request: CellRequest, prompts: Sequence[Prompt]) -> list[str]:
        return text_answers(
            request, prompts, max_new_tokens=NEW_TOKENS, complete=has_complete_integer
        )

    def _num_samples(self) -> int:
        return self.num_samples or _NUM_SAMPLES[self.profile]


def prompt_text(key: int, num_before: int, num_after: int) -> str:
    """The prompt for `key` with that many characters of garbage before and after it."""
    repeated = GARBAGE * (1 + max(num_before, num_after) // len(GARBAGE))
    fact = f"The pass key is {key}. Remember it. {key} is the pass key."
    return "\n".join([INSTRUCTION, repeated[:num_before], fact, repeated[:num_after], QUESTION])


def expected_tokens(num_garbage: int) -> float:
    """Prompt tokens for that many characters of garbage, with Llama's tokenizer."""
    return 72 + 0.2667 * num_garbage


def text_samples(prompts: Sequence[Prompt], answers: list[str]) -> list[Sample]:
    """Scores continuations: 1 where the first integer is the key."""
    return [
        Sample(
            index,
            len(prompt.ids),
            float(first_integer(answer) == int(prompt.reference)),
            prompt.depth,
            answer,
            prompt.reference,
        )
        for index, (prompt, answer) in enumerate(zip(prompts, answers, strict=True))
    ]


def _garbage_that_fits(request: CellRequest, step: int) -> int:
    """Most characters of garbage, a multiple of `step`, with which prompt and answer fit."""
    budget = request.eval_length - NEW_TOKENS

    def prompt_tokens(garbage: int) -> int:
        return len(encode(request, prompt_text(50000, garbage // 2, garbage - garbage // 2)))

    minimum = prompt_tokens(0)
    if minimum > budget:
        raise UnavailableError(
            f"eval_length {request.eval_length}: the passkey prompt without any garbage and its"
            f" answer need {minimum + NEW_TOKENS} tokens of this tokenizer. Evaluate longer"
            " contexts."
        )
    # Bisection in steps: `low` fits, `high` does not or is out of range.
    low, high = 0, budget * _MAX_CHARACTERS_PER_TOKEN // step + 1
    probe = max(1, int((budget - expected_tokens(0)) / 0.2667) // step)
    while high - low > 1:
        if not low < probe < high:
            probe = (low + high) // 2
        if prompt_tokens(probe * step) <= budget:
            low, probe = probe, probe + max(1, probe // 16)
        else:
            high, probe = probe, probe - max(1, probe // 16)
    return low * step


BENCHMARK = Passkey
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="appendix B.5 and figure of passkey accuracy; task: arXiv:2305.16300",
    reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
    differs="decoding is greedy and draws are seeded in every profile; the length includes the ten"
    " generated tokens",
)
EVIDENCE = (
    calls(expected_tokens, 1072.125, "Llama tokenizer, counted", num_garbage=3750),
    calls(expected_tokens, 64080.0, "Llama tokenizer, fitted line", num_garbage=240000),
    calls(first_integer, 4711, "first-integer rule", text=" 4711. Remember it. 12"),
)
VERSION = 1
