"""How large a prompt may be: the largest size that fits, and samples that shrink until they do.

Tokens are those of the whole prompt as the model gets it. Every search ends: places in `sizes`
strictly decrease, and a prompt whose smallest size does not fit makes the cell unavailable.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._retrieval import Prompt, encode, generator
from lce_core.benchmarks.ruler._drafts import PERMUTATION_SEED, Draft, Draw, TextTask
from lce_core.errors import UnavailableError

Sizes = Literal["v1", "search"]
Permutations = Literal["fixed", "per_sample"]


@dataclass(frozen=True, eq=False)
class RulerPrompt(Prompt):
    """A prompt with all its references; `reference` shows them in one line."""

    references: tuple[str, ...]
    cluster: str | None


@dataclass(frozen=True)
class Fitting:
    """Fills the prompts of one cell.

    `search` starts from the largest size at which the first sample fits and shrinks a sample that
    does not fit by its excess. `v1` goes by RULER's units: its search keeps room for the references
    as well, and a sample shrinks by one unit.
    """

    request: CellRequest
    task: TextTask
    sizes: Sizes
    permutations: Permutations

    def prompts(self, count: int) -> list[RulerPrompt]:
        """`count` prompts, each as large as fits.

        Raises:
          UnavailableError: the smallest size of a sample does not fit; names the minimum.
        """
        place = largest_place(self._tokens, len(self.task.sizes), self._budget())
        return [self._fitted(index, place, count) for index in range(count)]

    def _fitted(self, index: int, place: int, count: int) -> RulerPrompt:
        tries = 0
        while True:
            draft = self._draft(place, index)
            ids = encode(self.request, draft.text)
            excess = len(ids) - self._budget()
            if excess <= 0:
                return RulerPrompt(
                    np.array(ids, dtype=np.int64),
                    " | ".join(draft.references),
                    draft.depth,
                    draft.references,
                    draft.cluster,
                )
            if not place:
                raise UnavailableError(self._reason(count))
            tries += 1
            share = math.ceil(place * excess / len(ids))
            place = max(0, place - (1 if self.sizes == "v1" else max(tries, share)))

    def _tokens(self, place: int) -> int:
        draft = self._draft(place, 0)
        text = " ".join((draft.text, *draft.references)) if self.sizes == "v1" else draft.text
        return len(encode(self.request, text))

    def _draft(self, place: int, index: int) -> Draft:
        request = self.request
        rng = generator("ruler", request.task, request.eval_length, request.seed, index)
        fixed = self.permutations == "fixed"
        order = np.random.default_rng(PERMUTATION_SEED) if fixed else rng
        return self.task.draft(self.task.sizes[place], Draw(index, rng, order))

    def _budget(self) -> int:
        return self.request.eval_length - self.task.reserved

    def _reason(self, count: int) -> str:
        drafts = [self._draft(0, index) for index in range(count)]
        longest = max(len(encode(self.request, draft.text)) for draft in drafts)
        minimum = longest + self.task.reserved
        return (
            f"{self.request.task} at eval_length {self.request.eval_length}: the smallest prompts"
            f" and their answers need at least {minimum} tokens of this tokenizer. Evaluate longer"
            " contexts."
        )


def largest_place(tokens: Callable[[int], int], count: int, budget: int) -> int:
    """The last of `count` places whose tokens are within the budget; 0 if none is.

    Args:
      tokens: tokens at a place, growing with it. Counting is what costs, so steps double from the
        first place, and what is between is narrowed by interpolation and by halves in turn.
      count: number of places.
      budget: most tokens.
    """
    low, at_low, step = 0, tokens(0), 1
    if at_low > budget:
        return 0
    while True:
        high = min(low + step, count - 1)
        if high == low:
            return low
        at_high = tokens(high)
        if at_high > budget:
            break
        low, at_low, step = high, at_high, 2 * step
    halve = False
    while high - low > 1:
        share = 0.5 if halve else (budget - at_low) / (at_high - at_low)
        middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
        at_middle = tokens(middle)
        if at_middle <= budget:
            low, at_low = middle, at_middle
        else:
            high, at_high = middle, at_middle
        halve = not halve
    return low
