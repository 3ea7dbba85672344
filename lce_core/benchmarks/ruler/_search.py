"""Search for the largest prompt of each sample that fits, in the profiles `clean` and `fast`.

A place is an index into `TextTask.sizes`, the sizes that a prompt can have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from lce_core.benchmarks import CellRequest, Prompt, encode, too_long
from lce_core.benchmarks.ruler._drafts import Draft, Draw, TextTask
from lce_core.store.identity import fingerprint

FULL_SHARE = 0.99
"""Fraction of the available tokens at which a prompt counts as full and the search stops."""
_TIMES = 9


@dataclass(frozen=True)
class Search:
    """Builds the prompts of one cell, each of the largest size that fits.

    Every search starts at the size at which sample 0 is nearly full, so that a prompt depends on
    the cell and the sample's number alone. `order_seed` seeds permutations that all samples share.
    """

    request: CellRequest
    task: TextTask
    order_seed: int | None

    def prompts(self, count: int) -> list[Prompt]:
        """Build `count` prompts, or raise UnavailableError with the minimum length."""
        found = [self.prompt(index) for index in range(count)]
        fitted = [prompt for prompt in found if prompt is not None]
        if len(fitted) < count:
            smallest = (self._draft(0, index).text for index in range(count))
            longest = max(len(encode(self.request, text)) for text in smallest)
            what = f"the smallest prompts of {self.request.task} and their answers"
            raise too_long(self.request, what, longest + self.task.new_tokens)
        return fitted

    def prompt(self, index: int) -> Prompt | None:
        """Build the prompt of one sample; None if its smallest size does not fit."""
        return self._largest(index, self._start)[1]

    def growth(self, step: int) -> int:
        """Return the most tokens that sample 0 gains by one of eight steps of size `step`."""
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

    def _largest(self, index: int, start: int) -> tuple[int, Prompt | None]:
        room, best = self._room, list[Prompt]()

        def tokens(place: int) -> int:
            draft = self._draft(place, index)
            ids = encode(self.request, draft.text)
            if len(ids) <= room:
                best[:] = [draft.prompt(self.request, ids)]
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
    """Return the last of the places 0..count-1 with at most `room` tokens; -1 if all have more.

    `tokens` must increase with the place. It is expensive, so this makes at most about 2
    log2(count) calls, starting at `start`, and stops at a place with `enough` to `room` tokens.
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
        # Every place tried so far fits: extrapolate linearly, or at least by a doubling step.
        if high == count:
            place = low + max(step, (low + 1) * (room - at_low) // max(1, at_low))
            step *= 2
        else:
            # Alternate interpolation with bisection, which bounds the number of calls.
            share = 0.5 if halve else (room - at_low) / (at_high - at_low)
            place, halve = low + int(share * (high - low)), not halve
        place = min(max(place, low + 1), high - 1)
    return low
