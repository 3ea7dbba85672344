"""JSON key-value retrieval: find the value of one key in a dictionary of random UUIDs.

The prompt is HELMET's. The dictionary has as many pairs as fit. An answer is right if it contains
the value, ignoring case, punctuation, articles and white space (HELMET's substring exact match).
"""

import uuid
from collections.abc import Sequence

import numpy as np

from lce_core.benchmarks import (
    CellRequest,
    Examples,
    KeyTask,
    Profile,
    Prompt,
    Sampled,
    Source,
    calls,
    encode,
    encoded,
    marking,
)
from lce_core.evaluation.metrics import content_words

INSTRUCTION = "Extract the value corresponding to the specified key in the JSON object below."
DEPTHS = (0, 20, 40, 60, 80, 100)
"""Positions of the asked pair in per cent of the dictionary: six, as in HELMET's files dep6."""
SHOTS = 2
"""Solved examples before the asked key, the number of HELMET's base models."""

Pair = tuple[str, str]


class JsonKv(Sampled):
    """Fraction of keys for which the answer contains the value."""

    profiles = {
        "clean": Profile("96 keys, 16 at each of six depths", num_samples=96),
        "fast": Profile("clean with 24 keys", num_samples=24),
        "tiny": Profile(
            "60 prompts with one key token and seven distractors, for base models with key tokens",
            num_samples=60,
            keys=KeyTask(num_distractors=7),
        ),
    }
    answer_tokens = 100
    """As in HELMET."""

    def prompt(self, request: CellRequest, index: int, rng: np.random.Generator) -> Prompt:
        asked, depth = _pair(rng), _depth(index)
        examples = [_pair(rng) for _ in range(SHOTS)]
        places = rng.random(SHOTS).tolist()
        others: list[Pair] = []

        def text(count: int) -> str:
            others.extend(_pair(rng) for _ in range(count - len(others)))
            pairs = others[:count]
            for pair, place in zip([*examples, asked], [*places, depth / 100], strict=True):
                pairs.insert(round(place * len(pairs)), pair)
            return prompt_text(pairs, examples, asked[0])

        bare, local = (prompt_text(shown, examples, asked[0]) for shown in ([], [asked]))
        controls = encoded(request, bare, local)
        return Prompt(self.filled(request, text), asked[1], float(depth), controls=controls)

    def depths(self, draws: Sequence[np.random.Generator]) -> list[float]:
        return [float(_depth(index)) for index in range(len(draws))]

    def slack_tokens(self, request: CellRequest) -> int:
        # Two pairs are an upper bound of what one more pair needs.
        pair = _pair(np.random.default_rng(0))
        return 2 * len(encode(request, _written([pair, pair]), special_tokens=False))

    def score_answer(self, task: str, prompt: Prompt, answer: str) -> float:
        value, found = (" ".join(content_words(text)) for text in (prompt.reference, answer))
        return float(value in found)

    def complete(self, task: str, prompt: Prompt, answer: str) -> bool:
        return bool(self.score_answer(task, prompt, answer))


def prompt_text(pairs: Sequence[Pair], examples: Sequence[Pair], key: str) -> str:
    solved = "".join(f"{_question(one)} {value}\n\n" for one, value in examples)
    return f"JSON data:\n{_written(pairs)}\n\n{INSTRUCTION}\n\n{solved}{_question(key)}"


def _question(key: str) -> str:
    return f"Key: {key}\nCorresponding value:"


def _written(pairs: Sequence[Pair]) -> str:
    return "{" + ",\n ".join(f'"{key}": "{value}"' for key, value in pairs) + "}"


def _pair(rng: np.random.Generator) -> Pair:
    key, value = (str(uuid.UUID(bytes=rng.bytes(16), version=4)) for _ in range(2))
    return key, value


def _depth(index: int) -> int:
    return DEPTHS[index % len(DEPTHS)]


BENCHMARK = JsonKv
SOURCE = Source(
    paper="arXiv:2410.02694",
    place="section 2.1, synthetic recall (JSON KV); task: arXiv:2307.03172, section 4",
    reference="github.com/princeton-nlp/HELMET@4526dfbdc512bd9ff721da336bff4e3e75ecfd27;"
    " github.com/nelson-liu/lost-in-the-middle@04cbd0df78d3260600fd04e524a29bd1404ef86b",
    differs="pairs are drawn from the study's seed and their number fits the length; the examples"
    " are pairs of the same dictionary; the length includes the answer's tokens; decoding stops"
    " when the value occurs",
)
EVIDENCE = (
    calls(
        prompt_text,
        'JSON data:\n{"k1": "v1",\n "k2": "v2",\n "k3": "v3"}\n\nExtract the value corresponding to'
        " the specified key in the JSON object below.\n\nKey: k1\nCorresponding value: v1\n\n"
        "Key: k3\nCorresponding value: v3\n\nKey: k2\nCorresponding value:",
        "the templates of HELMET's load_json_kv, written out by hand",
        pairs=[("k1", "v1"), ("k2", "v2"), ("k3", "v3")],
        examples=[("k1", "v1"), ("k3", "v3")],
        key="k2",
    ),
    *(
        calls(JsonKv.score_answer, score, origin, **marking("single", "9f4a-77b0", answer))
        for answer, score, origin in (
            (' "9F4A-77B0".', 1.0, "HELMET's normalize_answer by hand: case and punctuation"),
            (" 9f4a77b0 and more", 1.0, "HELMET's normalize_answer by hand: text around"),
            (" 9f4a-77b1", 0.0, "another value"),
            (" 9f4a 77b0", 0.0, "a space remains a space"),
        )
    ),
)
EXAMPLES: Examples = ({"num_samples": 6},)
VERSION = 1
