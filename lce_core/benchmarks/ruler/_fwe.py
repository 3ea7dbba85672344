"""Frequent words extraction (fwe): coded words whose frequency falls with the square of their rank.

The most frequent one is noise ("..."); ranks two to four are asked for.
"""

from __future__ import annotations

import math
import string

from lce_core.benchmarks.ruler._drafts import Draft, Draw
from lce_core.benchmarks.ruler._vocabulary import draw_codes

PROMPT = (
    "Read the following coded text and track the frequency of each coded word. Find the three most"
    " frequently appeared coded words. {context}\nQuestion: Do not provide any explanation. Please"
    " ignore the dots '....'. What are the three most frequently appeared words in the above coded"
    " text? Answer: According to the coded text above, the three most frequently appeared words"
    " are:"
)
ZETA_2 = math.pi**2 / 6
"""The sum of all 1 / rank^2."""
WORD_LETTERS = 6
SMALLEST = 53
"""Words from which on rank five never occurs as often as rank four."""


class FrequentWords:
    """Sizes are words before counts are rounded down.

    Args:
      eval_length: tokens of context.
      units: whether sizes go by RULER's units (L / 32 words from L / 6 on); then no room is left
        for the answer either, so that prompt and answer may exceed the length by 50 tokens.
    """

    new_tokens = 50

    def __init__(self, eval_length: int, *, units: bool) -> None:
        self.reserved = 0 if units else self.new_tokens
        self._vocabulary = max(5, eval_length // 50)
        unit = max(1, eval_length // 32) if units else 1
        first = max(SMALLEST, eval_length // WORD_LETTERS - unit) if units else SMALLEST
        self.sizes = range(first, first + eval_length, unit)

    def draft(self, size: int, draw: Draw) -> Draft:
        """A prompt with about `size` words."""
        codes = draw_codes(self._vocabulary, string.ascii_lowercase, WORD_LETTERS, draw.rng)
        ordered = sorted(codes)
        words = [ordered[place] for place in draw.order.permutation(len(ordered))]
        words[0] = "..."
        text = [
            word
            for word, count in zip(words, counts(size, len(words)), strict=True)
            for _ in range(count)
        ]
        shuffled = [text[place] for place in draw.order.permutation(len(text))]
        return Draft(PROMPT.format(context=" ".join(shuffled)), tuple(words[1:4]), None)


def counts(num_words: int, vocabulary: int) -> list[int]:
    """Occurrences of each rank: floor(num_words / (rank^2 zeta(2)))."""
    return [int(num_words / (rank * rank * ZETA_2)) for rank in range(1, vocabulary + 1)]
