"""Common words (cwe) and frequent words (fwe) extraction: words that occur more often than others.

In cwe, ten words of a numbered list are common. In fwe, the r-th most frequent word occurs in
proportion to 1 / r^2; the most frequent one is noise ("..."), and the task asks for the next three.
"""

import math
import string
from random import Random

from lce_core.benchmarks.ruler._drafts import RULER_SEED, Draft, Draw, Units, numbered
from lce_core.benchmarks.ruler._vocabulary import plain_words

COMMON = (
    "Below is a numbered list of words. In these words, some appear more often than others."
    " Memorize the ones that appear most often.\n{context}\nQuestion: What are the 10 most common"
    " words in the above list? Answer: The top 10 words that appear most often in the list are:"
)
NUM_COMMON = 10
SHORT_LENGTH = 4096
FREQUENT = (
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


class CommonWords:
    """Common words extraction; the size of a prompt is its number of distinct words."""

    new_tokens = 120

    def __init__(self, eval_length: int, seed: int, *, v1: bool) -> None:
        self._short, self._v1 = eval_length < SHORT_LENGTH, v1
        self._vocabulary = list(plain_words())
        Random(RULER_SEED + seed).shuffle(self._vocabulary)
        most = len(self._vocabulary)
        self.sizes = range(NUM_COMMON + 1, min(most, eval_length + NUM_COMMON) + 1)
        self.units = Units(10, 10, self.new_tokens, "redrawn smaller", most)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        # RULER repeats words less often, and shows a shorter example, in short prompts.
        of_example, of_list = ((20, 3, 1), (6, 1)) if self._short else ((40, 10, 3), (30, 3))
        shot, shot_answer = self._words(*of_example, draw)
        context, common = self._words(size, *of_list, draw)
        joint = "" if self._v1 else " "  # RULER's first release has no space before the answer
        example = f"{COMMON.format(context=shot)}{joint}{numbered(shot_answer)}"
        text, bare = (f"{example}\n{COMMON.format(context=one)}" for one in (context, ""))
        stated = f" {numbered(common)}"
        return Draft(text, tuple(common), None, stated=stated, controls=(bare,))

    def _words(self, size: int, often: int, seldom: int, draw: Draw) -> tuple[str, list[str]]:
        """Return (shuffled list of `size` distinct words as text, its ten common words)."""
        chosen = draw.rng.sample(self._vocabulary, size)
        common = chosen[:NUM_COMMON]
        listed = common * often + chosen[NUM_COMMON:] * seldom
        draw.shuffle(listed)
        return numbered(listed), common


class FrequentWords:
    """Frequent words extraction; the size of a prompt is an upper limit of its number of words.

    RULER's first release reserves no tokens for the answer, so prompt and answer may exceed the
    length by 50 tokens. A sample has the same vocabulary at all sizes.
    """

    new_tokens = 50

    def __init__(self, eval_length: int, cell_length: int) -> None:
        self._vocabulary = max(5, cell_length // 50)
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
        whole, bare = (FREQUENT.format(context=" ".join(some)) for some in (text, []))
        return Draft(whole, tuple(words[1:4]), None, controls=(bare,))


def counts(num_words: int, vocabulary: int) -> list[int]:
    """Return floor(num_words / (rank^2 zeta(2))), the occurrences of each rank's word."""
    return [int(num_words / (rank * rank * ZETA_2)) for rank in range(1, vocabulary + 1)]
