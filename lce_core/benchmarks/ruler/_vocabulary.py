"""Keys and values of RULER's needles (adjective-noun pairs, numbers, uuids), and its word list.

The words are those of wonderwords 3.0.1 (MIT): 6782 nouns, 910 adjectives and 1041 verbs.
"""

import hashlib
import uuid
from bisect import bisect_right
from functools import cache
from importlib.resources import files
from itertools import accumulate
from random import Random

from lce_core.errors import UnavailableError

_SHA256 = {
    "noun": "d2e7b4a3fe536cfbe2aeb4790ee6d4f64f52d5fffba73067526ac7f564b6f4aa",
    "adjective": "0729eaf04deb51e29e659acbfa77a952749691f482bea256065399c1642cba90",
    "verb": "a6b9d92624e8620dd315bf908cf45db0dd593f6aafa95cde68a7e25b47d4f049",
}
"""Digests of the word lists. They fix the words of a cell, whose id has no digest of the lists."""


@cache
def word_list(kind: str) -> tuple[str, ...]:
    file = files("wonderwords").joinpath("assets", f"{kind}list.txt")
    words = sorted({line.rstrip() for line in file.read_text("utf-8").splitlines()})
    if hashlib.sha256("\n".join(words).encode()).hexdigest() != _SHA256[kind]:
        raise UnavailableError(
            f"word list {kind!r} of wonderwords",
            f"{len(words):,} words that differ from those of version 3.0.1",
            "the words that RULER's prompts are drawn from",
            "run `pip install wonderwords==3.0.1`",
        )
    return tuple(words)


@cache
def plain_words() -> tuple[str, ...]:
    lists = (word_list(kind) for kind in ("noun", "adjective", "verb"))
    return tuple(sorted({word for words in lists for word in words}))


@cache
def _groups() -> tuple[list[int], list[list[str]]]:
    """Group adjectives whose pairs interleave when sorted, such as "blue" and "blue-eyed".

    Returns (index of each group's first pair in the list of all pairs, adjectives of each group).
    """
    groups: list[list[str]] = []
    for adjective in sorted(word_list("adjective"), key=lambda word: f"{word}-"):
        if groups and adjective.startswith(f"{groups[-1][0]}-"):
            groups[-1].append(adjective)
        else:
            groups.append([adjective])
    sizes = (len(group) * len(word_list("noun")) for group in groups)
    return list(accumulate(sizes, initial=0)), groups


@cache
def _pairs(group: int) -> list[str]:
    return sorted(f"{one}-{other}" for one in _groups()[1][group] for other in word_list("noun"))


def pair(number: int) -> str:
    """Return the adjective-noun pair at an index of the sorted list of all 6,171,620 pairs.

    The list itself is not built, because a prompt needs only a few pairs.
    """
    first, groups = _groups()
    at = bisect_right(first, number) - 1
    if len(groups[at]) == 1:
        return f"{groups[at][0]}-{word_list('noun')[number - first[at]]}"
    # Pairs of a group interleave: "blue-eyed-ant" lies between "blue-eye" and "blue-fly".
    return _pairs(at)[number - first[at]]


def draw_item(kind: str, rng: Random) -> str:
    """Draw one key or value ("words", "numbers" or "uuids") as RULER does from the same `rng`."""
    match kind:
        case "words":
            return pair(rng.randrange(len(word_list("adjective")) * len(word_list("noun"))))
        case "numbers":
            return str(rng.randint(10**6, 10**7 - 1))
        case _:
            return str(uuid.UUID(int=rng.getrandbits(128), version=4))
