"""Key-value retrieval: find the value of one key in a JSON object of random UUIDs.

An answer is correct if it contains the value. The object has as many pairs as fit into the length,
at least two. The depths of the queried pairs are spread evenly over the prompts. Profile `clean`
has 100 prompts, `fast` 20.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from lce_core.benchmarks import (
    CellRequest,
    Profile,
    ProfileName,
    Prompt,
    PromptBenchmark,
    Source,
    calls,
    encode,
)

INSTRUCTION = "Extract the value corresponding to the specified key in the JSON object below."

Pair = tuple[str, str]


class JsonKeyValue(PromptBenchmark):
    """Fraction of prompts for which the model finds the value."""

    profiles: ClassVar[Mapping[ProfileName, Profile]] = {
        "clean": Profile("100 values at evenly spread depths", num_samples=100),
        "fast": Profile("as clean with 20 values", num_samples=20),
    }
    answer_tokens: ClassVar[int] = (
        48  # a UUID has 36 tokens of the toy model, whose tokens are bytes
    )

    def prompt(self, request: CellRequest, index: int, rng: np.random.Generator) -> Prompt:
        """Build a prompt with as many pairs as fit, and the queried pair at its depth."""
        share = (index + rng.random()) / self.num_prompts(request.task)
        asked, others = (drawn(rng), drawn(rng)), [(drawn(rng), drawn(rng))]

        def place(count: int) -> int:
            return int(share * (count + 2))

        def text(count: int) -> str:
            while len(others) <= count:
                others.append((drawn(rng), drawn(rng)))
            shown = others[: count + 1]
            shown.insert(place(count), asked)
            return prompt_text(shown, asked[0])

        count = self.parts_that_fit(request, text)
        depth = 100 * (place(count) + 0.5) / (count + 2)  # the middle of the queried pair
        return Prompt(self.fitted(request, text(count)), asked[1], depth)

    def prompt_tokens(self, task: str, eval_length: int) -> int:
        """Return the length without the answer and half a pair, which stays unused on average."""
        return eval_length - self.answer_tokens - 40

    def slack_tokens(self, request: CellRequest) -> int:
        """Return the size of one pair in tokens."""
        key, value = drawn(np.random.default_rng(0)), drawn(np.random.default_rng(1))
        return len(encode(request, f'"{key}": "{value}",\n ', special_tokens=False))

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        """Return 1 if the answer contains the value, else 0."""
        return rating(answer, prompt.reference)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        """Return True if the answer contains the value, so that decoding stops."""
        return rating(answer, prompt.reference) == 1


def drawn(rng: np.random.Generator) -> str:
    return str(uuid.UUID(bytes=rng.bytes(16), version=4))


def prompt_text(pairs: list[Pair], key: str) -> str:
    """Return the prompt: the JSON object, one pair per line, and the question about `key`."""
    shown = json.dumps(dict(pairs), separators=(",\n ", ": "))
    return f'{INSTRUCTION}\n\nJSON data:\n{shown}\n\nKey: "{key}"\nCorresponding value:'


def rating(answer: str, reference: str) -> float:
    """Return 1 if the answer contains the reference, ignoring case, else 0."""
    return float(reference.lower() in answer.lower())


BENCHMARK = JsonKeyValue
SOURCE = Source(
    paper="arXiv:2307.03172",
    place="section 4, key-value retrieval",
    reference="github.com/nelson-liu/lost-in-the-middle@04cbd0df78d3260600fd04e524a29bd1404ef86b",
    differs="the number of pairs depends on the length; at most 48 tokens are generated instead of"
    " 100, and decoding stops when the value occurs; the study's seed determines all random values",
)
EVIDENCE = (
    calls(rating, 1.0, "by hand", answer=' "9F4A-77".', reference="9f4a-77"),
    calls(rating, 0.0, "by hand", answer=' "9f4a-78".', reference="9f4a-77"),
    calls(
        prompt_text,
        "Extract the value corresponding to the specified key in the JSON object below."
        "\n\nJSON data:\n"
        '{"test key1": "test value1",\n "test key2": "test value2",\n "test key3": "test value3"}'
        '\n\nKey: "test key2"\nCorresponding value:',
        "tests/test_prompting.py of the repository, test_get_kv_retrieval_prompt",
        pairs=[(f"test key{number}", f"test value{number}") for number in (1, 2, 3)],
        key="test key2",
    ),
)
VERSION = 1
