"""Places that keys are rotated to, which follow from their position alone: such keys can be kept.

Schemes that rotate inside attention score a key from the same place for every query: its own
position, or that of its group. So a key needs one rotation for each of its places, and decoding a
token has to rotate one key instead of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from lce_core.attention.rotation import Rotation
from lce_core.rope import RopeTable


@dataclass(frozen=True)
class Placement:
    """The key at position p goes to place p // group, or as far behind a ceiling as it is from it.

    Equal placements of one table rotate alike, whatever the chunk: rotation works on each element.
    """

    table: RopeTable
    """Frequencies in force, told apart by identity."""
    group: int = 1
    """Tokens that share a place."""
    ceiling: int | None = None
    """Rotate back by the ceiling less the place: the query then needs no rotation."""

    def rotate(
        self, keys: torch.Tensor, seen: slice, part: tuple[int, int] = (0, 1)
    ) -> torch.Tensor:
        """Rotated keys.

        Args:
          keys: (batch, kv_heads, tokens, head_dim), not rotated.
          seen: their positions, start and stop given.
          part: which of how many equal parts of all heads they are.
        """
        rotation = Rotation(self.table, keys, part)
        if self.ceiling is None:
            return rotation(keys, seen, group=self.group)
        places = torch.arange(seen.start, seen.stop, device=keys.device) // self.group
        return rotation(keys, self.ceiling - places, back=True)


class PlacedKeys:
    """Rotated keys of consecutive positions of a growing text, each rotated once.

    What is asked for may begin later from call to call, as a window does; what lies before is then
    forgotten when there is no more room.
    """

    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._first = self._stop = 0
        self._room: torch.Tensor | None = None

    def get(self, keys: torch.Tensor, seen: slice, capacity: int) -> torch.Tensor:
        """Rotated keys (batch, kv_heads, seen, head_dim), a view that holds until the next call.

        Args:
          keys: (batch, kv_heads, tokens, head_dim) of the whole text, not rotated.
          seen: positions wanted, start and stop given.
          capacity: tokens that the text is expected to have.
        """
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
        """Forgets what follows the first `num_tokens` tokens of the text."""
        self._stop = min(self._stop, num_tokens)
        self._first = min(self._first, self._stop)

    def select(self, texts: torch.Tensor) -> None:
        """Leaves these texts of the batch, in this order."""
        if self._room is not None:
            self._room = self._room.index_select(0, texts)

    def _room_for(self, keys: torch.Tensor, seen: slice, capacity: int) -> torch.Tensor:
        old = self._room
        if old is not None and seen.stop - self._first <= old.shape[2]:
            return old
        # Twice a window, so that it moves on for its own length before it is copied once.
        tokens = seen.stop - seen.start
        tokens = max(tokens, min(2 * tokens, capacity - seen.start))
        room = keys.new_empty(*keys.shape[:2], tokens, keys.shape[3])
        held = self._stop - seen.start
        if old is not None and held:
            start = seen.start - self._first
            room[:, :, :held] = old[:, :, start : start + held]
        self._room, self._first = room, seen.start
        return room
