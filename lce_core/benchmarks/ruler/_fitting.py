"""How large a prompt may be, for RULER's units and for our own search.

Tokens are those of the whole prompt as the model gets it. Every search ends: the interval of places
shrinks with each count, and a sample whose smallest size does not fit makes the cell unavailable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._prompted.retrieval import Prompt, encode, generator
from lce_core.benchmarks.ruler._drafts import PERMUTATION_SEED, Draft, Draw, TextTask
from lce_core.errors import UnavailableError

Sizes = Literal["v1", "search"]
Permutations = Literal["fixed", "per_sample"]

FULL_SHARE = 0.99
"""Share of the room for a prompt from which on `search` looks for no larger size."""
_MEASURED_SIZES = 8
"""Sizes among which `tokens_per_size` looks."""


@dataclass(frozen=True, eq=False)
class RulerPrompt(Prompt):
    """A prompt with all its references; `reference` shows them in one line."""

    references: tuple[str, ...] = ()
    cluster: str | None = None


@dataclass(frozen=True)
class Fitting:
    """Fills the prompts of one cell.

    `search` gives each sample the largest size that fits it. `v1` finds one size for all with its
    first sample, in RULER's units and with room for the references as well; a sample that does not
    fit shrinks by units.
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
        fitted = self._in_units(count) if self.sizes == "v1" else self._searched(count)
        if len(fitted) < count:
            needed = self._smallest(count)
            raise UnavailableError(
                f"{self.request.task}: eval_length",
                f"{self.request.eval_length} tokens, where the smallest prompts and their answers"
                f" take {needed}",
                f"at least {needed} tokens",
                "evaluate longer contexts",
            )
        return fitted

    def tokens_per_size(self) -> int:
        """Tokens of one size more, the most among the smallest sizes of the first sample."""
        places = range(min(_MEASURED_SIZES, len(self.task.sizes)))
        found = [len(self._prompt(place, 0).ids) for place in places]
        return max((after - before for before, after in pairwise(found)), default=0)

    def _searched(self, count: int) -> list[RulerPrompt]:
        fitted: list[RulerPrompt] = []
        place = 0
        for index in range(count):
            best: list[RulerPrompt] = []

            def tokens(place: int, index: int = index, best: list[RulerPrompt] = best) -> int:
                prompt = self._prompt(place, index)
                if len(prompt.ids) <= self._room():
                    best[:] = [prompt]
                return len(prompt.ids)

            enough = int(FULL_SHARE * self._room())
            place = largest_place(tokens, len(self.task.sizes), self._room(), place, enough)
            if place < 0:
                break
            fitted += best
        return fitted

    def _in_units(self, count: int) -> list[RulerPrompt]:
        def tokens(place: int) -> int:
            draft = self._draft(place, 0)
            return len(encode(self.request, " ".join((draft.text, *draft.references))))

        common = max(0, largest_place(tokens, len(self.task.sizes), self._room()))
        fitted: list[RulerPrompt] = []
        for index in range(count):
            candidates = (self._prompt(place, index) for place in range(common, -1, -1))
            prompt = next((one for one in candidates if len(one.ids) <= self._room()), None)
            if prompt is None:
                break
            fitted.append(prompt)
        return fitted

    def _prompt(self, place: int, index: int) -> RulerPrompt:
        draft = self._draft(place, index)
        return RulerPrompt(
            np.array(encode(self.request, draft.text), dtype=np.int64),
            " | ".join(draft.references),
            draft.depth,
            draft.references,
            draft.cluster,
        )

    def _draft(self, place: int, index: int) -> Draft:
        request = self.request
        rng = generator("ruler", request.task, request.eval_length, request.seed, index)
        fixed = self.permutations == "fixed"
        order = np.random.default_rng(PERMUTATION_SEED) if fixed else rng
        return self.task.draft(self.task.sizes[place], Draw(index, rng, order))

    def _room(self) -> int:
        return self.request.eval_length - self.task.reserved

    def _smallest(self, count: int) -> int:
        longest = max(len(self._prompt(0, index).ids) for index in range(count))
        return longest + self.task.reserved


def largest_place(
    tokens: Callable[[int], int], count: int, room: int, start: int = 0, enough: int | None = None
) -> int:
    """The last of `count` places whose tokens fit; -1 if none does.

    Args:
      tokens: tokens at a place, growing with it. Counting is what costs: about 2 log2(count) times
        at most, less where tokens grow evenly, and never far beyond the answer.
      count: number of places.
      room: most tokens.
      start: the place to begin with.
      enough: a place that fits and has so many tokens will do.

    Returns:
      The last place that was counted and fits.
    """
    low, at_low, high, at_high = -1, 0, count, 0
    place, step, halve = start, 1, False
    while high - low > 1:
        at_place = tokens(place)
        if at_place > room:
            high, at_high = place, at_place
        else:
            low, at_low = place, at_place
            if enough is not None and at_place >= enough:
                break
        if high == count:  # none too large yet: go up by the tokens of a place so far, or faster
            place = low + max(step, (low + 1) * (room - at_low) // max(1, at_low))
            step *= 2
        else:
            share = 0.5 if halve else (room - at_low) / (at_high - at_low)
            place, halve = low + int(share * (high - low)), not halve
        place = min(max(place, low + 1), high - 1)
    return low
