"""A tokenizer and data sets on which RULER's first release was run; `release.json` has its output.

NVIDIA/RULER before commit 56ea4ef, `--random_seed 42`, base template, essays split at ". "; Python
3.11, numpy 2.4, wonderwords 3.0.1. For each task and length: the size that it found, the lengths of
its first prompts with their answers, and a digest of prompts and references.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lce_core.contracts.benchmark_cases import STORY
from tests.support.ruler.prompts import write_data

RECORDED: dict[str, Any] = json.loads(
    (Path(__file__).parent / "release.json").read_text(encoding="utf-8")
)
"""Task and length ("vt 4096") to size, lengths and digest."""
NUM_RECORDED = 3
_PIECE = re.compile(r" ?(?:[a-z]{1,6}|[A-Z][a-z]{1,5}|[A-Z]{1,2})|[^A-Za-z]")


class _Numbers(dict[str, int]):
    """Numbers of texts; a new text gets the next number."""

    def __missing__(self, text: str) -> int:
        return self.setdefault(text, len(self))


class WordPieces:
    """A stand-in for Llama's tokenizer: a token for each digit and mark, and for parts of words.

    Words have a token for six letters, capitals one for two, so that a line of noise has 25 tokens
    as with Llama's.
    """

    eos_token_id = None

    def __init__(self) -> None:
        self._numbers = _Numbers({"<s>": 0})

    def encode(
        self, text: str, *, add_special_tokens: bool = True, split_special_tokens: bool = False
    ) -> list[int]:
        ids = [0] if add_special_tokens else []
        return ids + [self._numbers[piece] for piece in _PIECE.findall(text)]

    def decode(self, ids: Sequence[int]) -> str:
        pieces = list(self._numbers)
        return "".join(pieces[number] for number in ids if number)


def release_data(root: Path) -> dict[str, Path]:
    """Data sets that are enough for 131,072 tokens."""
    return write_data(root, STORY * 8000, _squad(), _hotpot())


def digest(samples: Sequence[tuple[str, Sequence[str]]]) -> str:
    return hashlib.sha256(
        json.dumps([[text, *more] for text, more in samples]).encode()
    ).hexdigest()


def _paragraph(number: int) -> str:
    return f"Code {number} is kept here. {STORY * (3 + number * 7 % 11)}".strip()


def _squad() -> dict[str, Any]:
    def part(number: int) -> dict[str, Any]:
        answers = [{"text": f"code {number}"}] * (1 + number % 3) + [{"text": "it's kept"}]
        asked = {"question": f"Which is {number}?", "answers": answers, "is_impossible": False}
        return {"context": _paragraph(number), "qas": [asked]}

    return {
        "data": [
            {"title": f"Article {a}", "paragraphs": [part(25 * a + n) for n in range(25)]}
            for a in range(60)
        ]
    }


def _hotpot() -> list[dict[str, Any]]:
    return [
        {
            "question": f"What joins {row} and {row + 1}?",
            "answer": f"code {row}",
            "context": [
                [f"Town {10 * row + part}", [f"It has gate {part}. ", _paragraph(10 * row + part)]]
                for part in range(10)
            ],
            "supporting_facts": [[f"Town {10 * row + 3}", 0], [f"Town {10 * row + 7}", 1]],
        }
        for row in range(150)
    ]
