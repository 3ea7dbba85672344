"""Rotate keys to positions that are the same for every query, so that they can be cached."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lce_core.attention.chunks import most_together, runs
from lce_core.attention.rotation import Rotation
from lce_core.attention.schemes import TRUE_POSITIONS, Line
from lce_core.rope import RopeTable


def on_line(rotation: Rotation, states: Tensor, line: Line, tokens: slice) -> Tensor:
    """Rotate states (batch, heads, tokens, head_dim) of these tokens to their positions."""
    if line.most is not None and line.at(tokens.start) == (line.most,):
        return rotation(states, slice(line.most, line.most + 1))
    shift = line.shift[0]
    if line.most is None and len(line.group) == line.times == 1 and isinstance(shift, int):
        return rotation(states, tokens, group=line.group[0], shift=shift)
    return rotation(states, positions(line, tokens, states.device))


def positions(line: Line, tokens: slice, device: torch.device) -> Tensor:
    """Return the positions of tokens on a line, (tokens, 1) or (tokens, pairs)."""
    places = torch.arange(tokens.start, tokens.stop, device=device)[:, None]
    # A blocking copy would make every call wait for the GPU's earlier work.
    numbers = torch.tensor([line.group, line.shift], dtype=torch.float64)
    numbers = numbers.to(device, non_blocking=True)
    if line.times > 1:
        places = places * line.times
    found = places // numbers[0] + numbers[1]
    return found if line.most is None else found.clamp(max=line.most)


@dataclass(frozen=True)
class Placement:
    """Rule for the rotation of keys: each key is rotated to its position on a line.

    Equal placements give bitwise equal rotated keys, no matter how many keys one call rotates.
    """

    table: RopeTable
    """Placements with different table objects are unequal."""
    line: Line = TRUE_POSITIONS
    ceiling: int | None = None
    """Position of all queries, which stay unrotated: keys are rotated back by the difference."""
    period: int | None = None
    """Number of tokens after which positions start again at 0, only without line and ceiling."""

    def rotate(self, keys: Tensor, seen: slice, part: tuple[int, int] = (0, 1)) -> Tensor:
        rotation = Rotation(self.table, keys, part)
        if not self.table.rotates:
            return keys
        if self.period is not None:
            turned = []
            for run in runs(seen.start, seen.stop, self.period, most_together(keys)):
                some = keys[:, :, run.first - seen.start : run.stop - seen.start]
                chunks = rotation(some.unflatten(2, (run.num_chunks, -1)), run.places)
                turned.append(chunks.flatten(2, 3).transpose(1, 2))
            return torch.cat(turned, dim=1).transpose(1, 2)
        if self.ceiling is None:
            return on_line(rotation, keys, self.line, seen)
        return rotation(keys, self.ceiling - positions(self.line, seen, keys.device), back=True)


class PlacedKeys:
    """Cache of the rotated keys of a growing text; requests may cover a moving window."""

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._first = self._stop = 0
        self._room: Tensor | None = None

    def get(self, keys: Tensor, seen: slice, capacity: int) -> Tensor:
        """Return the text's keys at positions `seen`, rotated; valid until the next call."""
        if not self._first <= seen.start <= self._stop:
            self._first = self._stop = seen.start
        if self._stop < seen.stop:
            room = self._room_for(keys, seen, capacity)
            new = slice(self._stop, seen.stop)
            rotated = self._placement.rotate(keys[:, :, new], new)
            room[:, :, new.start - self._first : new.stop - self._first] = rotated
            self._stop = seen.stop
        assert self._room is not None
        return self._room[:, :, seen.start - self._first : seen.stop - self._first]

    def cut_back(self, num_tokens: int) -> None:
        self._stop = min(self._stop, num_tokens)
        self._first = min(self._first, self._stop)

    def select(self, texts: Tensor) -> None:
        if self._room is not None:
            self._room = self._room.index_select(0, texts)

    def _room_for(self, keys: Tensor, seen: slice, capacity: int) -> Tensor:
        old = self._room
        if old is not None and seen.stop - self._first <= old.shape[2]:
            return old
        # Allocate twice the window, so that the window can advance by its own length before the
        # keys are copied again.
        tokens = seen.stop - seen.start
        tokens = max(tokens, min(2 * tokens, capacity - seen.start))
        room = keys.new_empty(*keys.shape[:2], tokens, keys.shape[3])
        held = self._stop - seen.start
        if old is not None and held:
            start = seen.start - self._first
            room[:, :, :held] = old[:, :, start : start + held]
        self._room, self._first = room, seen.start
        return room
