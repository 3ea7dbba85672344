"""Rotation of queries and keys by a RoPE table, inside kernels that own their positions.

Angles are computed in float64 from the table, cosines are kept in float32 (float64 for float64
models), and the product is taken there before it is rounded to the model's dtype: no position is
ever rounded, unless the table says so. Cosines of blocks of positions are computed once and shared
by all layers of a request, as far as memory allows; states are rotated block by block, so that
products in float32 exist for one block at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch

from lce_core.errors import SpecError
from lce_core.recipe import Positions
from lce_core.rope import RopeTable

_BLOCK = 1024
"""Positions whose cosines are computed together."""
_KEPT_BYTES = 1 << 28
"""Cosines that are kept at most: those of 32 heads with a base each, for 16,384 positions."""


@lru_cache(maxsize=8)
def frequencies(table: RopeTable, device: torch.device) -> torch.Tensor:
    """The table's inverse frequencies on `device`, float64, of the table's own shape."""
    return torch.from_numpy(table.inv_freq).to(device)


def angles_at(
    positions: torch.Tensor, inv_freq: torch.Tensor, kind: Positions = "exact"
) -> torch.Tensor:
    """Positions times frequencies, float64; both float64, of shapes that broadcast."""
    if kind == "exact":
        return positions * inv_freq
    rounded = positions.to(torch.bfloat16)
    if kind == "bf16":
        return rounded.double() * inv_freq
    return (rounded * inv_freq.to(torch.bfloat16)).double()


def cosines(angles: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine of float64 angles, rounded once to `dtype`."""
    return angles.cos().to(dtype), angles.sin().to(dtype)


class Rotation:
    """Rotates states of one request.

    Args:
      table: frequencies in force.
      like: a query or key; gives device and precision.
      part: (index, number) where states are one of a number of equal parts of all heads.
    """

    def __init__(
        self, table: RopeTable, like: torch.Tensor, part: tuple[int, int] = (0, 1)
    ) -> None:
        self._table, self._part = table, part
        self._precise = torch.promote_types(like.dtype, torch.float32)

    def __call__(
        self,
        states: torch.Tensor,
        positions: torch.Tensor | slice,
        *,
        group: int = 1,
        shift: int = 0,
        back: bool = False,
    ) -> torch.Tensor:
        """Rotates states (batch, heads, tokens, head_dim) to integer positions.

        Elements beyond twice the number of pairs pass through (partial rotary). With one base per
        head, key-value heads take the base that their query heads share.

        Args:
          states: queries or keys.
          positions: (tokens,) or (1,), or a slice of so many, whose cosines are kept for others.
          group: tokens of a slice that share a place: position p goes to p // group + shift.
          shift: likewise.
          back: rotate to the negative of `positions`.
        """
        if isinstance(positions, torch.Tensor):
            angles = _cosines_at(self._table, positions.double(), self._precise, self._part)
            return self._turn(states, angles, back=back)
        pieces = list(_pieces(positions.start or 0, positions.stop, group, shift))
        sizes = [len(piece.places) for piece in pieces]
        if sizes == [1]:  # one position for all
            tokens = states.shape[-2]
            sizes = [min(_BLOCK, tokens - first) for first in range(0, tokens, _BLOCK)]
            pieces *= len(sizes)
        if len(pieces) == 1:
            return self._turn(states, self._of_block(*pieces[0], states.device), back=back)
        turned = (
            self._turn(some, self._of_block(*piece, states.device), back=back)
            for piece, some in zip(pieces, states.split(sizes, dim=-2), strict=True)
        )
        if torch.is_grad_enabled() and states.requires_grad:
            return torch.cat(list(turned), dim=-2)
        rotated = torch.empty_like(states)
        for into, some in zip(rotated.split(sizes, dim=-2), turned, strict=True):
            into.copy_(some)
        return rotated

    def _turn(
        self, states: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor], *, back: bool
    ) -> torch.Tensor:
        cos = self._of_heads(angles[0], states.shape[1])[..., None, :]
        sin = self._of_heads(angles[1], states.shape[1])
        pairs = cos.shape[-1]
        halves = states[..., : 2 * pairs].unflatten(-1, (2, pairs)).to(cos.dtype)
        turned = halves * cos
        turned[..., 0, :].addcmul_(halves[..., 1, :], sin, value=1 if back else -1)
        turned[..., 1, :].addcmul_(halves[..., 0, :], sin, value=-1 if back else 1)
        rotated: torch.Tensor = turned.flatten(-2).to(states.dtype)
        if 2 * pairs == states.shape[-1]:
            return rotated
        return torch.cat((rotated, states[..., 2 * pairs :]), dim=-1)

    def _of_heads(self, values: torch.Tensor, num_heads: int) -> torch.Tensor:
        return values if values.ndim == 2 else values[:: values.shape[0] // num_heads]

    def _of_block(
        self, block: int, places: range, group: int, device: torch.device
    ) -> tuple[torch.Tensor, torch.Tensor]:
        cos, sin = _KEPT.get(self._table, block, device, self._precise, self._part)
        first, last = places[0] // group, places[-1] // group
        if group == 1 or first == last:
            rows: slice | torch.Tensor = slice(first, last + 1)
        else:
            rows = torch.arange(places.start, places.stop, device=device) // group
        return cos[..., rows, :], sin[..., rows, :]


def check_heads(table: RopeTable, num_heads: int, num_kv_heads: int) -> None:
    """Refuses tables that the heads cannot share.

    Raises:
      SpecError: a (heads, pairs) table of another number of heads, or with different rows for the
        query heads of one key-value head, whose key can be rotated only once.
    """
    if table.inv_freq.ndim == 1:
        return
    if table.inv_freq.shape[0] != num_heads:
        raise SpecError(
            "rope table",
            f"{table.inv_freq.shape[0]} rows",
            f"one row for each of the {num_heads} query heads",
            "give one base per query head",
        )
    groups = table.inv_freq.reshape(num_kv_heads, num_heads // num_kv_heads, -1)
    if (groups != groups[:, :1]).any():
        raise SpecError(
            "rope table",
            "different bases within a key-value head",
            f"one base for the {num_heads // num_kv_heads} query heads of a key-value head",
            "assign bases to key-value heads",
        )


class _Piece(NamedTuple):
    """Consecutive tokens whose places are of one block."""

    block: int
    places: range
    """A number for each token; divided by `group`, which of the block's rows is its own."""
    group: int


def _pieces(start: int, stop: int, group: int, shift: int) -> Iterator[_Piece]:
    """Positions start..stop, each going to position // group + shift, a block at most at a time."""
    while start < stop:
        block = (start // group + shift) // _BLOCK
        before = (block * _BLOCK - shift) * group
        end = min(stop, before + _BLOCK * group, start + _BLOCK)
        yield _Piece(block, range(start - before, end - before), group)
        start = end


def _cosines_at(
    table: RopeTable, positions: torch.Tensor, dtype: torch.dtype, part: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosine and sine (positions, pairs) or (heads, positions, pairs) of float64 positions."""
    index, number = part
    inv_freq = frequencies(table, positions.device)
    if inv_freq.ndim == 2:
        inv_freq = inv_freq.chunk(number)[index]
    return cosines(angles_at(positions[:, None], inv_freq[..., None, :], table.positions), dtype)


class _Kept:
    """Cosines of blocks of positions, those not asked for longest forgotten first."""

    def __init__(self) -> None:
        self._blocks: OrderedDict[tuple[object, ...], tuple[torch.Tensor, torch.Tensor]] = (
            OrderedDict()
        )

    @property
    def num_bytes(self) -> int:
        """What is kept now."""
        return sum(cos.nbytes + sin.nbytes for cos, sin in self._blocks.values())

    def get(
        self,
        table: RopeTable,
        block: int,
        device: torch.device,
        dtype: torch.dtype,
        part: tuple[int, int],
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of a block's positions."""
        part = part if table.inv_freq.ndim == 2 else (0, 1)
        key = (table, block, device, dtype, part)
        found = self._blocks.get(key)
        if found is None:
            # Read in training too, where tensors born in inference mode are refused.
            with torch.inference_mode(mode=False):
                first = block * _BLOCK
                positions = torch.arange(first, first + _BLOCK, dtype=torch.float64, device=device)
                found = self._blocks[key] = _cosines_at(table, positions, dtype, part)
            self._forget(table)
        self._blocks.move_to_end(key)
        return found

    def _forget(self, table: RopeTable) -> None:
        # What gradients need stays in memory anyway: kept, it is that of all layers.
        needed = table if torch.is_grad_enabled() else None
        for key in [key for key in self._blocks if key[0] is not needed][:-1]:
            if self.num_bytes <= _KEPT_BYTES:
                break
            del self._blocks[key]


_KEPT = _Kept()
