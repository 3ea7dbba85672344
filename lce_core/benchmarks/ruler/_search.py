"""How large a prompt may be: the largest size that fits each sample by itself.

Tokens are those of the whole prompt as the model gets it. Every search ends: the interval of places
shrinks with each count, and a sample whose smallest size does not fit makes the cell unavailable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lce_core.benchmarks import CellRequest
from lce_core.benchmarks._prompted.retrieval import encode
from lce_core.benchmarks.ruler._drafts import Draft, Draw, TextTask
from lce_core.benchmarks.ruler._prompts import RulerPrompt, prompt_of, refuse
from lce_core.store.identity import fingerprint

FULL_SHARE = 0.99
"""Share of the room for a prompt from which on no larger size is looked for."""
_TIMES = 9
"""Sizes among which `growth` looks."""


@dataclass(frozen=True)
class Search:
    """Fills the prompts of one cell, each from random numbers of its own.

    A sample's prompt follows from its number and the cell alone: every search begins at one size,
    at which the first sample is about full, whichever prompts were built before.

    Args:
      request: the cell.
      task: its task.
      order_seed: seed of the orders that all samples share; None: each has its own.
    """

    request: CellRequest
    task: TextTask
    order_seed: int | None

    def prompts(self, count: int) -> list[RulerPrompt]:
        """`count` prompts, each as large as fits.

        Raises:
          UnavailableError: the smallest size of a sample does not fit; names the minimum.
        """
        found = [self.prompt(index) for index in range(count)]
        fitted = [prompt for prompt in found if prompt is not None]
        if len(fitted) < count:
            smallest = (self._draft(0, index).text for index in range(count))
            longest = max(len(encode(self.request, text)) for text in smallest)
            refuse(self.request, longest + self.task.new_tokens)
        return fitted

    def prompt(self, index: int) -> RulerPrompt | None:
        """The prompt of one sample; None if its smallest size does not fit."""
        return self._largest(index, self._start)[1]

    def growth(self, step: int) -> int:
        """Tokens by which `step` sizes more lengthen the first sample, the most of eight times."""
        places = range(0, len(self.task.sizes), step)[:_TIMES]
        found = [len(encode(self.request, self._draft(place, 0).text)) for place in places]
        return max((after - before for before, after in pairwise(found)), default=0)

    @property
    def _room(self) -> int:
        return self.request.eval_length - self.task.new_tokens

    @cached_property
    def _start(self) -> int:
        place, prompt = self._largest(0, 0)
        if prompt is None:
            return 0
        aim = (1 + FULL_SHARE) / 2 * self._room
        return min(int(place * aim / len(prompt.ids)), len(self.task.sizes) - 1)

    def _largest(self, index: int, start: int) -> tuple[int, RulerPrompt | None]:
        room, best = self._room, list[RulerPrompt]()

        def tokens(place: int) -> int:
            draft = self._draft(place, index)
            ids = encode(self.request, draft.text)
            if len(ids) <= room:
                best[:] = [prompt_of(draft, ids)]
            return len(ids)

        enough = int(FULL_SHARE * room)
        place = largest_place(tokens, len(self.task.sizes), room, start, enough)
        return place, best[0] if best else None

    def _draft(self, place: int, index: int) -> Draft:
        request = self.request
        where = ["ruler", request.task, request.eval_length, request.seed, index]
        draw = Draw.of(int(fingerprint(where), 16), self.order_seed)
        return self.task.draft(self.task.sizes[place], index, draw)


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
