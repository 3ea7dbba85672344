"""Words that RULER hides: adjective-noun pairs, numbers and uuids; its vocabulary of plain words.

The lists are those of wonderwords 3.0.1 (MIT): 6782 nouns, 910 adjectives and 1041 verbs.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from functools import cache
from importlib.resources import files
from itertools import accumulate
from random import Random


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


@cache
def _families() -> tuple[tuple[str, ...], ...]:
    """Adjectives, sorted by what they begin in a pair; those that begin alike stand together."""
    families: list[list[str]] = []
    for adjective in sorted(word_list("adjective"), key=lambda word: f"{word}-"):
        if families and adjective.startswith(f"{families[-1][0]}-"):
            families[-1].append(adjective)
        else:
            families.append([adjective])
    return tuple(tuple(family) for family in families)


@cache
def _family_pairs(family: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(f"{one}-{other}" for one in family for other in word_list("noun")))


@cache
def _first_pairs() -> tuple[int, ...]:
    """Number of each family's first pair."""
    sizes = (len(family) * len(word_list("noun")) for family in _families())
    return tuple(accumulate(sizes, initial=0))


def pair(number: int) -> str:
    """The adjective-noun pair of this number among all 6,171,620 in order."""
    nouns = word_list("noun")
    at = bisect_right(_first_pairs(), number) - 1
    family, within = _families()[at], number - _first_pairs()[at]
    if len(family) == 1:
        return f"{family[0]}-{nouns[within]}"
    return _family_pairs(family)[within]  # "blue-eyed-ant" is between "blue-eye" and "blue-fly"


def draw_item(kind: str, rng: Random) -> str:
    """One item of a kind ("words", "numbers", "uuids"), drawn as RULER draws it."""
    match kind:
        case "words":
            return pair(rng.randrange(len(word_list("adjective")) * len(word_list("noun"))))
        case "numbers":
            return str(rng.randint(10**6, 10**7 - 1))
        case _:
            return str(uuid.UUID(int=rng.getrandbits(128), version=4))
