"""Frequent words extraction (fwe): coded words whose frequency falls with the squared rank.

The most frequent one is noise ("..."); the task asks for ranks two to four.
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
"""The sum of 1 / rank^2 over all ranks."""
WORD_LETTERS = 6
SMALLEST = 53
"""Minimum number of words; from here on, the fifth word is always rarer than the fourth."""


class FrequentWords:
    """Frequent words extraction; the size of a prompt is its number of words, before rounding.

    The first release increases the size by L / 32 words, starting from L / 6, and leaves no room
    for the answer, so prompt and answer may exceed the length by 50 tokens. A sample keeps its
    vocabulary at all sizes.

    Args:
      eval_length: context length in tokens.
    """

    new_tokens = 50

    def __init__(self, eval_length: int) -> None:
        self._vocabulary = max(5, eval_length // 50)
        self.sizes = range(SMALLEST, SMALLEST + eval_length)
        step, first = max(1, eval_length // 32), eval_length // WORD_LETTERS
        self.units = Units(step, first, 0, "smaller", least=SMALLEST)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """Build a prompt with about `size` words."""
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
    """Return how often the word of each rank occurs: floor(num_words / (rank^2 zeta(2)))."""
    return [int(num_words / (rank * rank * ZETA_2)) for rank in range(1, vocabulary + 1)]
