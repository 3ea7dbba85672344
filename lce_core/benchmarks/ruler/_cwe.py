"""Common words extraction (cwe): ten words occur more often than the others in a numbered list."""

from __future__ import annotations

from random import Random

from lce_core.benchmarks.ruler._drafts import RULER_SEED, Draft, Draw, Units, numbered
from lce_core.benchmarks.ruler._vocabulary import plain_words

TASK = (
    "Below is a numbered list of words. In these words, some appear more often than others."
    " Memorize the ones that appear most often.\n{context}\nQuestion: What are the 10 most common"
    " words in the above list? Answer: The top 10 words that appear most often in the list are:"
)
NUM_COMMON = 10
SHORT_LENGTH = 4096
"""RULER repeats words less often, and shows a shorter example, at lengths below 4,096 tokens."""


class CommonWords:
    """Common words extraction; the size of a prompt is its number of distinct words.

    `v1` is the wording of RULER's first release, without a space before the example's answer.
    """

    new_tokens = 120

    def __init__(self, eval_length: int, seed: int, *, v1: bool) -> None:
        self._short, self._v1 = eval_length < SHORT_LENGTH, v1
        self._vocabulary = list(plain_words())
        Random(RULER_SEED + seed).shuffle(self._vocabulary)
        most = len(self._vocabulary)
        self.sizes = range(NUM_COMMON + 1, min(most, eval_length + NUM_COMMON) + 1)
        self.units = Units(10, 10, self.new_tokens, "redrawn smaller", most)

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        shot_size, shot_repeats, repeats = (
            (20, (3, 1), (6, 1)) if self._short else (40, (10, 3), (30, 3))
        )
        shot, shot_answer = self._words(shot_size, *shot_repeats, draw)
        context, common = self._words(size, *repeats, draw)
        joint = "" if self._v1 else " "
        example = f"{TASK.format(context=shot)}{joint}{numbered(shot_answer)}"
        text = f"{example}\n{TASK.format(context=context)}"
        return Draft(text, tuple(common), None, stated=f" {numbered(common)}")

    def _words(self, size: int, often: int, seldom: int, draw: Draw) -> tuple[str, list[str]]:
        """Return (shuffled list of `size` distinct words as text, its ten common words)."""
        chosen = draw.rng.sample(self._vocabulary, size)
        common = chosen[:NUM_COMMON]
        listed = common * often + chosen[NUM_COMMON:] * seldom
        draw.shuffle(listed)
        return numbered(listed), common
