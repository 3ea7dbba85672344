"""Prompts of RULER's tasks before tokenisation, and the choice of their sizes.

A prompt of the profiles `clean` and `fast` has the largest size that fits (`Search`). `InUnits`
finds the sizes of RULER's first release for `faithful`: the release grows a prompt in steps until
it is too long. Every size must be drawn, because each draw advances the random generator.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from random import Random
from typing import Any, Literal, Protocol, Self

import numpy as np

from lce_core.benchmarks import CellRequest, Prompt, encode, encoded, too_long
from lce_core.errors import UnavailableError
from lce_core.store.identity import fingerprint

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
RULER_SEED = 42
"""RULER's `random_seed`, to which the study's seed is added."""

Retry = Literal["redrawn smaller", "redrawn", "smaller"]
"""RULER's reaction to a prompt that is too long: draw a new one a step smaller or of the same size,
or shrink the same draw by a step."""
FULL_SHARE = 0.99
"""Fraction of the available tokens at which a prompt counts as full and the search stops."""
_TIMES = 9
MAX_TRIES = 100
"""Draws of a sample that cannot shrink before its cell is unavailable. RULER would never stop."""
SEAMS = 16
"""Maximum difference between a prompt's tokens and the sum over its halves (`Draft.counted`)."""


@dataclass(frozen=True)
class Draft:
    """A prompt before tokenisation, with the fields of `Prompt` as text."""

    text: str
    references: tuple[str, ...]
    depth: float | None
    """Mean position of the answers in per cent of the context."""
    cluster: str | None = None
    stated: str = ""
    """The references as text, whose tokens RULER's first release adds to the prompt's length."""
    counted: tuple[str, str] | None = None
    """Two halves of the prompt, if RULER's first release counts their tokens separately."""
    evidence: str = ""
    controls: Sequence[str] = ()

    def prompt(self, request: CellRequest, ids: list[int]) -> Prompt:
        return Prompt(
            np.array(ids, dtype=np.int64),
            " | ".join(self.references),
            self.depth,
            references=self.references,
            cluster=self.cluster,
            evidence=self.evidence,
            controls=encoded(request, *self.controls),
        )


@dataclass(frozen=True)
class Draw:
    """RULER's two random generators, and the seed of its permutations.

    All current releases of Python and numpy reproduce RULER's samples in RULER's order.
    """

    rng: Random
    values: np.random.RandomState
    """Generator that RULER uses only for the numbers in variable tracking."""
    order_seed: int | None
    """Seed of a new generator for every permutation; None draws permutations from `rng`."""

    @classmethod
    def of(cls, seed: int, order_seed: int | None) -> Self:
        return cls(Random(seed), np.random.RandomState(seed % 2**32), order_seed)

    def shuffle(self, items: list[str] | list[int]) -> None:
        """Permute a list in place; with `order_seed`, lists of equal length are permuted alike."""
        rng = self.rng if self.order_seed is None else Random(self.order_seed)
        rng.shuffle(items)

    def codes(self, count: int, letters: str, length: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            missing = range(count - len(found))
            found |= dict.fromkeys("".join(self.rng.choices(letters, k=length)) for _ in missing)
        return list(found)


@dataclass(frozen=True)
class Units:
    """Prompt sizes that RULER's first release tries: first, first + step, ... up to most."""

    step: int
    first: int
    reserved: int
    """Tokens of the cell's length that the prompt leaves free for the answer."""
    retry: Retry
    most: int | None = None
    """Largest size, limited by the data; None for no limit."""
    least: int = 1


class TextTask(Protocol):
    """One of RULER's tasks at one length, which builds prompts of any size."""

    sizes: range
    """Sizes that `Search` may try: numbers of words, lines, blocks of noise or documents."""

    def draft(self, size: int, index: int, draw: Draw) -> Draft:
        """Build the prompt of sample `index`; a larger `size` makes a longer prompt."""


class ReleasedTask(TextTask, Protocol):
    """A task of RULER's first release."""

    new_tokens: int
    units: Units


def percent(position: float, last: int) -> float:
    return 100 * position / last if last else 0.0


def numbered(words: Sequence[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, start=1))


@dataclass(frozen=True)
class Search:
    """Builds the prompts of one cell, each of the largest size that fits.

    Every search starts at the size at which sample 0 is nearly full, so that a prompt depends on
    the cell and the sample's number alone.
    """

    request: CellRequest
    task: TextTask
    new_tokens: int
    order_seed: int | None = None

    def prompts(self, count: int) -> list[Prompt]:
        """Build `count` prompts, or raise UnavailableError with the minimum length."""
        found = [self._largest(index, self._start)[1] for index in range(count)]
        fitted = [prompt for prompt in found if prompt is not None]
        if len(fitted) < count:
            smallest = (self._draft(0, index).text for index in range(count))
            longest = max(len(encode(self.request, text)) for text in smallest)
            what = f"the smallest prompts of {self.request.task} and their answers"
            raise too_long(self.request, what, longest + self.new_tokens)
        return fitted

    def growth(self, step: int) -> int:
        """Return the most tokens that sample 0 gains by one of eight steps of size `step`."""
        places = range(0, len(self.task.sizes), step)[:_TIMES]
        found = [len(encode(self.request, self._draft(place, 0).text)) for place in places]
        return max((after - before for before, after in pairwise(found)), default=0)

    @property
    def _room(self) -> int:
        return self.request.eval_length - self.new_tokens

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
        where = ["ruler", request.task, request.cell_length, request.seed, index]
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


@dataclass(frozen=True)
class InUnits:
    """Builds the samples of one cell with the sizes and draws of RULER's first release.

    As in that release, token counts exclude special tokens, and all samples share `draw`.
    """

    request: CellRequest
    task: ReleasedTask
    draw: Draw

    def prompts(self, count: int) -> list[Prompt]:
        size = self.common_size()
        drafts = (self.sample(size, index) for index in range(count))
        return [draft.prompt(self.request, ids) for draft, ids in drafts]

    def common_size(self) -> int:
        """Return the size that is tried first for every sample: the last at which sample 0 fits.

        If sample 0 fills the length exactly, RULER starts one step larger, and samples shrink. In
        vt, where samples cannot shrink, and in fwe, an exact fit counts as too long.
        """
        units, room = self.task.units, self._room
        size, state = units.first, self.draw.rng.getstate()
        while True:
            draft = self._drawn(size, 0, state)
            # The release counts the references too, which it appends to the prompt.
            *first, last = draft.counted or (draft.text,)
            total = _sum(self.request, [*first, last + draft.stated])
            exact = total == room and units.retry == "redrawn smaller"
            if total >= room and not exact:
                if size - units.step < units.least:
                    raise self._too_long(total)
                return size - units.step
            size += units.step
            if units.most is not None and size > units.most:
                return units.most
            if exact:
                return size

    def sample(self, size: int, index: int) -> tuple[Draft, list[int]]:
        """Return (draft, token ids) of the next sample, of `size` or smaller."""
        units, tries, state = self.task.units, 0, self.draw.rng.getstate()
        while True:
            draft = self._drawn(size, index, state)
            ids = encode(self.request, draft.text)
            total = len(ids) - len(encode(self.request, ""))
            if draft.counted is not None and total + SEAMS > self._room:
                total = _sum(self.request, draft.counted)
            if total <= self._room:
                return draft, ids
            if units.retry != "redrawn" and size - units.step >= units.least:
                size -= units.step
                continue
            tries += 1
            if tries == MAX_TRIES or units.retry == "smaller":
                raise self._too_long(total)

    def _drawn(self, size: int, index: int, state: tuple[Any, ...]) -> Draft:
        # Restore the generator, so that all sizes use one draw.
        if self.task.units.retry == "smaller":
            self.draw.rng.setstate(state)
        return self.task.draft(size, index, self.draw)

    @property
    def _room(self) -> int:
        return self.request.eval_length - self.task.units.reserved

    def _too_long(self, tokens: int) -> UnavailableError:
        needed = max(tokens + self.task.new_tokens, self.request.eval_length + 1)
        smallest = "" if self.task.units.retry == "redrawn" else "smallest "
        what = f"the {smallest}prompts of {self.request.task} and their answers"
        return too_long(self.request, what, needed)


def _sum(request: CellRequest, texts: Sequence[str]) -> int:
    return sum(len(encode(request, text, special_tokens=False)) for text in texts)
