"""LongBench's metrics: score one prediction (a generated answer) against one reference answer.

Source: github.com/THUDM/LongBench@2e00731 (LongBench/metrics.py and LongBench/eval.py). Applied to
the published predictions, these functions reproduce the published scores to the second digit.
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
    return text.lstrip("\n").split("\n", 1)[0]


def has_complete_line(text: str) -> bool:
    return "\n" in text.lstrip("\n")


def token_f1(prediction: str, reference: str) -> float:
    """Return the F1 score of words in lower case, without ASCII punctuation, a, an and the."""
    found, wanted = _words(prediction), _words(reference)
    common = (Counter(found) & Counter(wanted)).total()
    return 2 * common / (len(found) + len(wanted)) if common else 0.0


def rouge_l(prediction: str, reference: str) -> float:
    """Return the ROUGE-L F score of the package `rouge`, 0..1; 0 if either text has no words.

    The package splits sentences at full stops and takes the union of their longest common
    subsequences, with each distinct word once. Like LongBench, this returns 0 where it fails.
    """
    try:
        scores = _ROUGE.get_scores(prediction, reference)
    except (ValueError, RecursionError):
        return 0.0
    return float(scores[0]["rouge-l"]["f"])


def class_share(prediction: str, reference: str, classes: Sequence[str]) -> float:
    """Return 1 / (number of class names in the prediction) if the reference is among them, else 0.

    A class name that is a part of the reference does not count. LongBench removes such names from a
    list while it iterates over that list, which skips the name after each removed one. This
    function does the same, so scores depend on the order of `classes`.
    """
    named = [name for name in classes if name in prediction]
    # Removing while iterating reproduces LongBench.
    for name in named:
        if name in reference and name != reference:
            named.remove(name)
    return 1 / len(named) if reference in named else 0.0


def number_share(prediction: str, reference: str) -> float:
    """Return the fraction (0..1) of the numbers in the prediction that equal the reference."""
    numbers = re.findall(r"\d+", prediction)
    return numbers.count(reference) / len(numbers) if numbers else 0.0


def paragraph_share(prediction: str, reference: str) -> float:
    """Return the fraction of numbers that equal that of the reference, such as "Paragraph 15"."""
    paragraph = re.search(r"Paragraph (\d+)", reference)
    if paragraph is None:
        raise DataError(
            "passage retrieval",
            f"the answer {reference!r}",
            "an answer such as 'Paragraph 15'",
            "get the data set `longbench` again",
        )
    return number_share(prediction, paragraph[1])


def code_similarity(prediction: str, reference: str) -> float:
    """Return the similarity (0..1, two digits) of the prediction's first code line and reference.

    A code line contains no backtick, "#" or "//". The published scores were computed by fuzzywuzzy
    without python-Levenshtein, which returns difflib's 2 M / T as here. With python-Levenshtein,
    fuzzywuzzy returns an edit-distance ratio, which differs.
    """
    return round(100 * SequenceMatcher(None, _code_line(prediction), reference).ratio()) / 100


def has_complete_code_line(text: str) -> bool:
    return any(map(_is_code, text.lstrip("\n").split("\n")[:-1]))


def _code_line(text: str) -> str:
    return next(filter(_is_code, text.lstrip("\n").split("\n")), "")


def _is_code(line: str) -> bool:
    return not any(mark in line for mark in ("`", "#", "//"))


def _words(text: str) -> list[str]:
    plain = text.lower().translate(_WITHOUT_PUNCTUATION)
    return re.sub(r"\b(a|an|the)\b", " ", plain).split()
