"""Frequent words extraction (fwe): coded words whose frequency falls with the square of their rank.

The most frequent one is noise ("..."); ranks two to four are asked for.
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
"""The sum of all 1 / rank^2."""
WORD_LETTERS = 6
SMALLEST = 53
"""Words from which on rank five never occurs as often as rank four."""


class FrequentWords:
    """Sizes are words before counts are rounded down.

    The first release goes up by L / 32 words from L / 6 on and leaves no room for the answer, so
    that prompt and answer may exceed the length by 50 tokens; a sample keeps its vocabulary at all
    sizes.

    Args:
      eval_length: tokens of context.
    """

    new_tokens = 50

    def __init__(self, eval_length: int) -> None:
        self._vocabulary = max(5, eval_length // 50)
        self.sizes = range(SMALLEST, SMALLEST + eval_length)
        step, first = max(1, eval_length // 32), eval_length // WORD_LETTERS
        self.units = Units(step, first, 0, "smaller", least=SMALLEST)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """A prompt with about `size` words."""
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
    """Occurrences of each rank: floor(num_words / (rank^2 zeta(2)))."""
    return [int(num_words / (rank * rank * ZETA_2)) for rank in range(1, vocabulary + 1)]
