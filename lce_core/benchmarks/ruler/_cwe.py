"""Common words extraction (cwe): ten words occur more often than the others of a numbered list.

One worked example stands before the task.
"""

from __future__ import annotations

import numpy as np

from lce_core.benchmarks.ruler._drafts import Draft, Draw
from lce_core.benchmarks.ruler._vocabulary import plain_words

TASK = (
    "Below is a numbered list of words. In these words, some appear more often than others."
    " Memorize the ones that appear most often.\n{context}\nQuestion: What are the 10 most common"
    " words in the above list? Answer: The top 10 words that appear most often in the list are:"
)
NUM_COMMON = 10
SHORT_LENGTH = 4096
"""Below it there are fewer repetitions."""
UNIT = 10


class CommonWords:
    """Sizes are distinct words.

    Args:
      eval_length: tokens of context.
      v1: the first release's wording: no blank before the example's answer.
      units: whether sizes go by tens of words or one by one.
    """

    new_tokens = reserved = 120

    def __init__(self, eval_length: int, *, v1: bool, units: bool) -> None:
        self._short, self._v1 = eval_length < SHORT_LENGTH, v1
        step = UNIT if units else 1
        most = min(len(plain_words()), eval_length + UNIT)
        self.sizes = range(UNIT if units else NUM_COMMON + 1, most + 1, step)

    def draft(self, size: int, draw: Draw) -> Draft:
        """A prompt with `size` distinct words, the ten common ones among them."""
        shot_size, shot_repeats, repeats = (
            (20, (3, 1), (6, 1)) if self._short else (40, (10, 3), (30, 3))
        )
        shot, shot_answer = _words(shot_size, *shot_repeats, draw)
        context, common = _words(size, *repeats, draw)
        joint = "" if self._v1 else " "
        example = f"{TASK.format(context=shot)}{joint}{_numbered(shot_answer)}"
        return Draft(f"{example}\n{TASK.format(context=context)}", tuple(common), None)


def _words(size: int, often: int, seldom: int, draw: Draw) -> tuple[str, list[str]]:
    """The numbered list and its common words."""
    vocabulary = plain_words()
    chosen = [vocabulary[place] for place in draw.rng.permutation(len(vocabulary))[:size]]
    common = chosen[:NUM_COMMON]
    listed = np.array(common * often + chosen[NUM_COMMON:] * seldom)
    return _numbered(draw.order.permutation(listed).tolist()), common


def _numbered(words: list[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))
