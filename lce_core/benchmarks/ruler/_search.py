"""Search for the largest prompt that fits, separately for each sample.

A place is an index into `TextTask.sizes`. Tokens are those of the whole prompt as the model
receives it. Every search ends: each count shrinks the interval of places, and a sample whose
smallest size does not fit makes the cell unavailable.
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
"""The search stops at a prompt that takes this share of the available tokens."""
_TIMES = 9
"""Number of sizes that `growth` compares."""


@dataclass(frozen=True)
class Search:
    """Builds the prompts of one cell, each of the largest size that fits.

    A sample's prompt depends only on its number and the cell: every search starts at the same size,
    at which the first sample is nearly full, whichever prompts were built before.

    Args:
      request: the cell.
      task: the cell's task.
      order_seed: seed of the permutations that all samples share; None gives each sample its own.
    """

    request: CellRequest
    task: TextTask
    order_seed: int | None

    def prompts(self, count: int) -> list[RulerPrompt]:
        """Build `count` prompts, each as large as fits.

        Raises:
          UnavailableError: if the smallest size of a sample does not fit; the message states the
            minimum.
        """
        found = [self.prompt(index) for index in range(count)]
        fitted = [prompt for prompt in found if prompt is not None]
        if len(fitted) < count:
            smallest = (self._draft(0, index).text for index in range(count))
            longest = max(len(encode(self.request, text)) for text in smallest)
            refuse(self.request, longest + self.task.new_tokens)
        return fitted

    def prompt(self, index: int) -> RulerPrompt | None:
        """Build the prompt of one sample; None if its smallest size does not fit."""
        return self._largest(index, self._start)[1]

    def growth(self, step: int) -> int:
        """Return the largest growth of the first sample in tokens, if its size grows by `step`.

        Compares the first nine sizes that are `step` apart.
        """
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
    """Return the last of the places 0..count-1 whose tokens fit into `room`; -1 if none does.

    Args:
      tokens: returns the tokens at a place, increasing with the place. Counting is the expensive
        part: at most about 2 log2(count) calls, fewer if tokens grow evenly, and never far beyond
        the result.
      count: number of places.
      room: maximum number of tokens.
      start: first place to try.
      enough: stop at a place that fits and has at least this many tokens.

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
        # No place was too large yet: jump by the mean tokens per place so far, or by a doubling
        # step.
        if high == count:
            place = low + max(step, (low + 1) * (room - at_low) // max(1, at_low))
            step *= 2
        else:
            # Alternate interpolation with bisection, which bounds the number of calls if tokens
            # grow unevenly.
            share = 0.5 if halve else (room - at_low) / (at_high - at_low)
            place, halve = low + int(share * (high - low)), not halve
        place = min(max(place, low + 1), high - 1)
    return low
