"""Scores of one answer against its references, as the benchmarks' authors define them."""

import re
import string
from collections.abc import Sequence
from functools import cache
from typing import Any

_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def word_overlap(answer: str, expected: str) -> float:
    """Return the fraction of the words of `expected` that occur in `answer`.

    The numerator counts distinct words, the denominator all words. If `expected` repeats a word,
    even a perfect answer scores below 1. Source: LCEG's needle figure
    (github.com/Leooyii/LCEG@2ce672d).
    """
    words = expected.lower().split()
    return len(set(answer.lower().split()) & set(words)) / len(words)


def rouge_1(answer: str, reference: str) -> float:
    """Return the ROUGE-1 F score of stemmed words, 0..1, as LCEG (which multiplies by ten)."""
    return float(_rouge_scorer().score(reference, answer)["rouge1"].fmeasure)


@cache
def _rouge_scorer() -> Any:
    # Imported here because it imports nltk.
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer(["rouge1"], use_stemmer=True)


def contains(answer: str, expected: str) -> float:
    """Return 1.0 if `answer` contains `expected`, ignoring case and whitespace, else 0.0."""
    return float(_plain(expected) in _plain(answer))


def content_words(text: str) -> list[str]:
    """Return the words in lower case, without ASCII punctuation, a, an and the (SQuAD's rule)."""
    plain = text.lower().translate(_WITHOUT_PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()


def integer(digits: str) -> int | None:
    """Return the integer, or None if it has more digits than Python converts (4,300)."""
    try:
        return int(digits)
    except ValueError:
        return None


def first_integer(text: str) -> int | None:
    """Return the first run of decimal digits in `text`, or None if there is none or it is too long.

    Source: passkey evaluation of github.com/jquesnelle/yarn@995db5b.
    """
    found = re.search(r"[0-9]+", text)
    return integer(found.group()) if found else None


def last_integer(text: str) -> int | None:
    """Return the last run of decimal digits in `text`, or None if there is none or it is too long.

    Source: lines task of github.com/DachengLi1/LongChat@4b5faa5 (longeval/utils.py).
    """
    found = re.findall(r"[0-9]+", text)
    return integer(found[-1]) if found else None


def has_complete_integer(text: str) -> bool:
    """Return True if more text cannot change `first_integer`, so that decoding may stop."""
    return re.search(r"[0-9][^0-9]", text) is not None


def string_match_all(answer: str, references: Sequence[str]) -> float:
    """Return the fraction of `references` that occur in `answer`, ignoring case.

    Control characters count as line breaks. Source: RULER (github.com/NVIDIA/RULER@c3f5e3b), times
    100.
    """
    return sum(_matches(answer, references)) / len(references)


def string_match_part(answer: str, references: Sequence[str]) -> float:
    """Return 1.0 if any of `references` occurs in `answer`, ignoring case; else 0.0 (RULER)."""
    return float(any(_matches(answer, references)))


def _matches(answer: str, references: Sequence[str]) -> list[bool]:
    printable = re.sub(r"[\x00-\x1f]", "\n", answer.strip()).strip().lower()
    return [reference.lower() in printable for reference in references]


def _plain(text: str) -> str:
    return " ".join(text.lower().split())
