"""Passkey retrieval: the model repeats a number that is hidden in irrelevant text.

A prompt consists of an instruction, filler, the sentence with the key, filler, and the question. An
answer is right if its first integer is the key. Like YaRN's script, `faithful` draws keys from
1..50000, hides them at random depths and adjusts the filler in steps of 128 characters. `clean` and
`fast` adjust it by single characters.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import Field

from lce_core.benchmarks import (
    WORDINGS,
    CellRequest,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    Source,
    Worded,
    calls,
    encode,
    encoded,
    marking,
    strata,
    too_long,
)
from lce_core.evaluation.metrics import first_integer, has_complete_integer

INSTRUCTIONS = (
    "There is an important info hidden inside a lot of irrelevant text. Find it and memorize them."
    " I will quiz you about the important information there.",
    "The following text contains one number that matters. Read all of it; a question follows.",
    "Text:",
)
FACTS = (
    "The pass key is {key}. Remember it. {key} is the pass key.",
    "The number to remember is {key}. Do not forget it: {key}.",
    "Secret code: {key}.",
)
GARBAGE = (
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again. "
)
QUESTIONS = (
    "What is the pass key? The pass key is",
    "Which number did you have to remember? The number to remember is",
    "Secret code:",
)
"""Instruction, sentence with the key, and question by wording; the first is the reference's."""
NEW_TOKENS = 10
FAITHFUL_STEP = 128
"""Characters of filler that YaRN's script adds per step."""
_MAX_CHARACTERS_PER_TOKEN = 64
"""Limits the search for the longest filler."""
_TOKENS_PER_CHARACTER = 24 / 90
"""Llama tokens per character of the filler: 24 tokens for the 90 characters of `GARBAGE`."""


class Passkey(Worded):
    """Passkey retrieval: the score is the fraction of prompts answered with the hidden key."""

    profiles = {
        "faithful": Profile(
            "50 keys from 1..50000 at random depths; filler grows by 128 characters", num_samples=50
        ),
        "clean": Profile(
            "200 keys of five digits at stratified depths; filler fills the length", num_samples=200
        ),
        "fast": Profile("clean with 100 keys", num_samples=100),
        "tiny": Profile(
            "120 prompts with one key token and three distractors, for base models with key tokens",
            num_samples=120,
            keys=KeyTask(num_distractors=3),
        ),
    }
    answer_tokens = NEW_TOKENS

    num_samples: int | None = Field(default=None, gt=0)
    """Prompts per cell; None means 50 (faithful), 200 (clean), 100 (fast), 120 (tiny)."""

    def depths(self, draws: Sequence[np.random.Generator]) -> list[float]:
        # strata(draws, 100) would round otherwise than `clean` and `fast`.
        return [100 * share for share in strata(draws)]

    def build(self, request: CellRequest) -> list[Prompt]:
        step = FAITHFUL_STEP if self.profile == "faithful" else 1
        draws = self.draws(request)
        shares = strata(draws)
        most = _garbage_that_fits(request, step)
        return [
            self._text_prompt(request, most, step, share, rng)
            for share, rng in zip(shares, draws, strict=True)
        ]

    def slack_tokens(self, request: CellRequest) -> int:
        if self.profile != "faithful":
            return 0
        return len(encode(request, (2 * GARBAGE)[:FAITHFUL_STEP], special_tokens=False))

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        return float(first_integer(answer) == int(prompt.reference))

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return has_complete_integer(answer)

    def _text_prompt(
        self, request: CellRequest, garbage: int, step: int, share: float, rng: np.random.Generator
    ) -> Prompt:
        if self.profile == "faithful":
            key, share = int(rng.integers(1, 50001)), rng.random()
        else:
            key = int(rng.integers(10000, 100000))
        # At another depth, the split of the filler can cost a token more than when it was measured.
        while True:
            before = round(share * garbage)
            wording = WORDINGS.index(request.task)
            ids = encode(request, prompt_text(key, before, garbage - before, wording))
            if len(ids) + NEW_TOKENS <= request.eval_length or garbage == 0:
                frame = INSTRUCTIONS[wording], QUESTIONS[wording]
                local = FACTS[wording].format(key=key).join(["\n", "\n"])
                return Prompt(
                    np.array(ids, dtype=np.int64),
                    str(key),
                    100 * share,
                    controls=encoded(request, "\n".join(frame), local.join(frame)),
                )
            garbage = max(0, garbage - step)


def prompt_text(key: int, num_before: int, num_after: int, wording: int = 0) -> str:
    repeated = GARBAGE * (1 + max(num_before, num_after) // len(GARBAGE))
    fact = FACTS[wording].format(key=key)
    parts = INSTRUCTIONS[wording], repeated[:num_before], fact, repeated[:num_after]
    return "\n".join([*parts, QUESTIONS[wording]])


def expected_tokens(num_garbage: int) -> float:
    return 71 + _TOKENS_PER_CHARACTER * num_garbage


def _garbage_that_fits(request: CellRequest, step: int) -> int:
    budget, wording = request.eval_length - NEW_TOKENS, WORDINGS.index(request.task)

    def prompt_tokens(garbage: int) -> int:
        halves = garbage // 2, garbage - garbage // 2
        return len(encode(request, prompt_text(50000, *halves, wording)))

    minimum = prompt_tokens(0)
    if minimum > budget:
        what = "the passkey prompt (without filler) and its answer"
        raise too_long(request, what, minimum + NEW_TOKENS)
    # Search in steps: `low` fits, `high` is too long or out of range. The first probe is an
    # estimate; later probes move by 1/16 until both bounds are probes, then bisect.
    low, high = 0, budget * _MAX_CHARACTERS_PER_TOKEN // step + 1
    probe = max(1, int((budget - expected_tokens(0)) / _TOKENS_PER_CHARACTER) // step)
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
    calls(
        prompt_text,
        "There is an important info hidden inside a lot of irrelevant text. Find it and memorize"
        " them. I will quiz you about the important information there.\nThe grass\nThe pass key is"
        " 12. Remember it. 12 is the pass key.\nThe g\nWhat is the pass key? The pass key is",
        "the prompt of the reference's passkey.py, written out",
        key=12,
        num_before=9,
        num_after=5,
    ),
    *(
        calls(
            expected_tokens,
            tokens,
            "counted with Llama's tokenizer, key 50000 in the middle; up to four fewer elsewhere",
            tolerance=0.002,
            num_garbage=num_garbage,
        )
        for num_garbage, tokens in ((0, 71), (3750, 1073), (240_000, 64_071))
    ),
    *(
        calls(Passkey.score_answer, score, origin, **marking("single", "4711", answer))
        for answer, score, origin in (
            (" 4711. Remember it. 12", 1.0, "the first integer is the key"),
            (" 12. Remember it. 4711", 0.0, "the first integer is another"),
            (" grass", 0.0, "no integer"),
        )
    ),
)
EXAMPLES: Examples = ({"num_samples": 6},)
VERSION = 1
