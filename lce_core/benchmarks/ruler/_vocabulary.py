"""Words that RULER hides: adjective-noun pairs, numbers and uuids; its vocabulary of plain words.

The lists are those of wonderwords 3.0.1 (MIT): 6782 nouns, 910 adjectives and 1041 verbs.
"""

from __future__ import annotations

import uuid
from functools import cache
from importlib.resources import files

import numpy as np


@cache
def word_list(kind: str) -> tuple[str, ...]:
    """Distinct words of one kind ("noun", "adjective", "verb"), sorted."""
    file = files("wonderwords").joinpath("assets", f"{kind}list.txt")
    return tuple(sorted({line.rstrip() for line in file.read_text("utf-8").splitlines()}))


@cache
def plain_words() -> tuple[str, ...]:
    """All nouns, adjectives and verbs, sorted; 8166 words."""
    lists = (word_list(kind) for kind in ("noun", "adjective", "verb"))
    return tuple(sorted({word for words in lists for word in words}))


def draw_items(kind: str, count: int, rng: np.random.Generator) -> list[str]:
    """`count` items of a kind ("words", "numbers", "uuids"), distinct."""
    found: dict[str, None] = {}
    while len(found) < count:
        found |= dict.fromkeys(_draw(kind, count - len(found), rng))
    return list(found)


def _draw(kind: str, count: int, rng: np.random.Generator) -> list[str]:
    match kind:
        case "words":
            adjectives, nouns = word_list("adjective"), word_list("noun")
            first = rng.integers(len(adjectives), size=count).tolist()
            second = rng.integers(len(nouns), size=count).tolist()
            pairs = zip(first, second, strict=True)
            return [f"{adjectives[one]}-{nouns[other]}" for one, other in pairs]
        case "numbers":
            return [str(number) for number in rng.integers(10**6, 10**7, size=count).tolist()]
        case _:
            raw = rng.bytes(16 * count)
            parts = (raw[start : start + 16] for start in range(0, len(raw), 16))
            return [str(uuid.UUID(bytes=part, version=4)) for part in parts]


def draw_codes(count: int, letters: str, length: int, rng: np.random.Generator) -> list[str]:
    """`count` distinct strings of that many letters."""
    found: dict[str, None] = {}
    while len(found) < count:
        places = rng.integers(len(letters), size=(count - len(found), length)).tolist()
        found |= dict.fromkeys("".join(letters[place] for place in row) for row in places)
    return list(found)
