"""LongBench's scores of one prediction against one reference, and its rule about the first line.

Source: github.com/THUDM/LongBench@2e00731 (LongBench/metrics.py and LongBench/eval.py); its
predictions with published scores are reproduced to the second digit.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from difflib import SequenceMatcher

from rouge import Rouge

from lce_core.errors import DataError

_ROUGE = Rouge(metrics=["rouge-l"])
_WITHOUT_PUNCTUATION = str.maketrans("", "", string.punctuation)


def first_line(text: str) -> str:
    """The text up to the first newline that follows something other than newlines."""
    return text.lstrip("\n").split("\n", 1)[0]


def has_complete_line(text: str) -> bool:
    """Whether more text can no longer change `first_line`."""
    return "\n" in text.lstrip("\n")


def token_f1(prediction: str, reference: str) -> float:
    """Harmonic mean of precision and recall of words, 0..1.

    Words are compared in lower case, without ASCII punctuation and without a, an, the.
    """
    found, wanted = _words(prediction), _words(reference)
    common = (Counter(found) & Counter(wanted)).total()
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


def rouge_l(prediction: str, reference: str) -> float:
    """ROUGE-L F of the package `rouge`, 0..1; 0 where one side has no words.

    The package splits sentences at full stops and takes the union of their longest common
    subsequences, each distinct word once. LongBench gives 0 to what makes it fail.
    """
    try:
        scores = _ROUGE.get_scores(prediction, reference)
    except (ValueError, RecursionError):
        return 0.0
    return float(scores[0]["rouge-l"]["f"])


def class_share(prediction: str, reference: str, classes: Sequence[str]) -> float:
    """1 / (number of classes that the prediction names) if the reference is one of them, else 0.

    A class that is part of the reference's name does not count. LongBench takes such classes out
    of the list it is walking through, so the one behind each is not looked at; scores depend on
    it, and on the order of `classes`.
    """
    named = [name for name in classes if name in prediction]
    for name in named:  # removing while iterating is LongBench's rule, not an oversight
        if name in reference and name != reference:
            named.remove(name)
    return 1 / len(named) if reference in named else 0.0


def number_share(prediction: str, reference: str) -> float:
    """Share of the prediction's runs of digits that are the reference, 0..1."""
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(reference) / len(numbers) if numbers else 0.0


def paragraph_share(prediction: str, reference: str) -> float:
    """`number_share` with the number of a reference such as "Paragraph 15".

    Raises:
      DataError: the reference names no paragraph.
    """
    paragraph = re.search(r"Paragraph (\d+)", reference)
    if paragraph is None:
        raise DataError(
            "passage retrieval",
            f"the answer {reference!r}",
            "an answer such as 'Paragraph 15'",
            "get the data set again",
        )
    return number_share(prediction, paragraph[1])


def code_similarity(prediction: str, reference: str) -> float:
    """Similarity of the prediction's first line of code to the reference, in steps of 0.01.

    The ratio is 2 M / T of difflib (M characters in matching blocks, T in both texts). It is what
    fuzzywuzzy computes where python-Levenshtein is not installed, as for the published scores; an
    edit-distance ratio gives other numbers.
    """
    return round(100 * SequenceMatcher(None, _code_line(prediction), reference).ratio()) / 100


def has_complete_code_line(text: str) -> bool:
    """Whether more text can no longer change the line that `code_similarity` compares."""
    return any(map(_is_code, text.lstrip("\n").split("\n")[:-1]))


def _code_line(text: str) -> str:
    return next(filter(_is_code, text.lstrip("\n").split("\n")), "")


def _is_code(line: str) -> bool:
    return not any(mark in line for mark in ("`", "#", "//"))


def _words(text: str) -> list[str]:
    plain = text.lower().translate(_WITHOUT_PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()
