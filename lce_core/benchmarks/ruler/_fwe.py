"""Frequent words extraction (fwe): the r-th most frequent word occurs in proportion to 1 / r^2.

The most frequent word is noise ("..."); the task asks for the next three.
"""

from __future__ import annotations

import math
import string

from lce_core.benchmarks.ruler._drafts import Draft, Draw, Units

PROMPT = (
    "Read the following coded text and track the frequency of each coded word. Find the three most"
    " frequently appeared coded words. {context}\nQuestion: Do not provide any explanation. Please"
    " ignore the dots '....'. What are the three most frequently appeared words in the above coded"
    " text? Answer: According to the coded text above, the three most frequently appeared words"
    " are:"
)
ZETA_2 = math.pi**2 / 6
"""Sum of 1 / rank^2 over all ranks, which normalises word frequencies to 1."""
WORD_LETTERS = 6
SMALLEST = 53
"""Minimum number of words: with fewer, the fourth and fifth most frequent could be equally
frequent, and the answer ambiguous."""


class FrequentWords:
    """Frequent words extraction; the size of a prompt is an upper limit of its number of words.

    RULER's first release starts with L / 6 words, adds L / 32 at a time, and reserves no tokens for
    the answer, so prompt and answer may exceed the length L by 50 tokens. A sample has the same
    vocabulary at all sizes.
    """

    new_tokens = 50

    def __init__(self, eval_length: int) -> None:
        self._vocabulary = max(5, eval_length // 50)
        self.sizes = range(SMALLEST, SMALLEST + eval_length)
        step, first = max(1, eval_length // 32), eval_length // WORD_LETTERS
        self.units = Units(step, first, 0, "smaller", least=SMALLEST)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        words = sorted(draw.codes(self._vocabulary, string.ascii_lowercase, WORD_LETTERS))
        draw.shuffle(words)
        words[0] = "..."
        text = [
            word
            for word, count in zip(words, counts(size, len(words)), strict=True)
            for _ in range(count)
        ]
        draw.shuffle(text)
        return Draft(PROMPT.format(context=" ".join(text)), tuple(words[1:4]), None)


def counts(num_words: int, vocabulary: int) -> list[int]:
    """Return floor(num_words / (rank^2 zeta(2))), the occurrences of each rank's word."""
    return [int(num_words / (rank * rank * ZETA_2)) for rank in range(1, vocabulary + 1)]
