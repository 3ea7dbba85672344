"""Rotate queries and keys by a RoPE table; used by kernels of attention schemes.

Angles are computed in float64, so positions are never rounded unless `RopeTable.positions` says so.
Cosines and sines are stored in float32 (float64 for float64 models), which is also the precision of
the rotation, and shared by all layers of a request as far as memory allows.
"""

from collections import OrderedDict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from lce_core.errors import SpecError
from lce_core.recipe import Positions
from lce_core.rope import RopeTable

_BLOCK = 1024
"""Positions in a block, whose cosines are computed and cached together; more on GPUs."""
_ROTATED_BYTES = 1 << 28
"""Limit for the float32 states of one of these larger blocks (256 MiB)."""
_KEPT_BYTES = 1 << 28
"""Limit for cached cosines: 16,384 positions if 32 heads of head_dim 128 have one base each."""


def frequencies(table: RopeTable, device: torch.device) -> Tensor:
    # torch.compile cannot trace a cache.
    return _to_device(table, device) if torch.compiler.is_compiling() else _cached(table, device)


def _to_device(table: RopeTable, device: torch.device) -> Tensor:
    # The copy of so few numbers need not wait for the GPU's earlier work.
    return torch.from_numpy(table.inv_freq).to(device, non_blocking=True)


_cached = lru_cache(maxsize=8)(_to_device)


def angles_at(positions: Tensor, inv_freq: Tensor, kind: Positions = "exact") -> Tensor:
    """Return positions times frequencies as float64; the arguments are float64 and broadcastable.

    `kind` reproduces other implementations: "bf16" rounds positions to bf16, "bf16_angles" computes
    the whole product in bf16.
    """
    if kind == "exact":
        return positions * inv_freq
    rounded = positions.to(torch.bfloat16)
    if kind == "bf16":
        return rounded.double() * inv_freq
    return (rounded * inv_freq.to(torch.bfloat16)).double()


def cosines(angles: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    return angles.cos().to(dtype), angles.sin().to(dtype)


class Rotation:
    """Rotates queries or keys by one RoPE table; `part` is that of AttentionInputs."""

    def __init__(self, table: RopeTable, like: Tensor, part: tuple[int, int] = (0, 1)) -> None:
        self._table, self._part = table, part if table.inv_freq.ndim == 2 else (0, 1)
        self._precise = torch.promote_types(like.dtype, torch.float32)

    def __call__(
        self,
        states: Tensor,
        positions: Tensor | slice,
        *,
        group: int = 1,
        shift: int = 0,
        back: bool = False,
    ) -> Tensor:
        """Rotate states (batch, heads, tokens, head_dim) to integer positions.

        Args:
          positions: a slice, whose cosines are cached; or a tensor with one position per token, one
            for all, or (tokens, pairs) one for each token and frequency pair.
          group, shift: the token at position p of a slice is rotated to p // group + shift.
          back: rotate in the opposite direction.
        """
        if not self._table.rotates:
            return states
        if torch.compiler.is_compiling() and isinstance(positions, slice):
            # The compiler fuses the cosines with the product, so they are neither split into blocks
            # nor cached.
            whole = torch.arange(positions.start or 0, positions.stop, device=states.device)
            positions = whole // group + shift
        if isinstance(positions, Tensor):
            return self._turn(states, self._cosines_at(positions.double()), back=back)
        first, stop = positions.start or 0, positions.stop
        pieces = list(_pieces(first, stop, group, shift, self._block_size(states, stop - first)))
        sizes = [len(piece.places) for piece in pieces]
        # A slice of one position applies to all tokens; rotate them in blocks.
        if sizes == [1]:
            tokens = states.shape[-2]
            size = self._block_size(states, tokens)
            sizes = [min(size, tokens - first) for first in range(0, tokens, size)]
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

    def _block_size(self, states: Tensor, tokens: int) -> int:
        size = _BLOCK
        if states.device.type == "cpu":
            return size
        per_token = states.numel() // states.shape[-2] * self._precise.itemsize
        while size < tokens and 2 * size * per_token <= _ROTATED_BYTES:
            size *= 2
        return size

    def _turn(self, states: Tensor, angles: tuple[Tensor, Tensor], *, back: bool) -> Tensor:
        cos = self._of_heads(angles[0], states.shape[1])[..., None, :]
        sin = self._of_heads(angles[1], states.shape[1])
        pairs = cos.shape[-1]
        halves = states[..., : 2 * pairs].unflatten(-1, (2, pairs))
        recorded = torch.is_grad_enabled() and states.requires_grad
        # Without gradients, a GPU casts the states inside the products, without a float32 copy.
        if recorded or states.device.type == "cpu":
            halves = halves.to(cos.dtype)
        if recorded:
            # Activation checkpointing requires operations that change no tensor in place.
            signed = torch.stack((sin, -sin) if back else (-sin, sin), dim=-2)
            turned = torch.addcmul(halves * cos, halves.flip(-2), signed)
        else:
            turned = halves * cos
            turned[..., 0, :].addcmul_(halves[..., 1, :], sin, value=1 if back else -1)
            turned[..., 1, :].addcmul_(halves[..., 0, :], sin, value=-1 if back else 1)
        rotated: Tensor = turned.flatten(-2).to(states.dtype)
        if 2 * pairs == states.shape[-1]:
            return rotated
        return torch.cat((rotated, states[..., 2 * pairs :]), dim=-1)

    def _of_heads(self, values: Tensor, num_heads: int) -> Tensor:
        return values if values.ndim == 2 else values[:: values.shape[0] // num_heads]

    def _of_block(
        self, block: int, size: int, places: range, group: int, device: torch.device
    ) -> tuple[Tensor, Tensor]:
        cos, sin = self._kept(block, size, device)
        first, last = places[0] // group, places[-1] // group
        if group == 1 or first == last:
            rows: slice | Tensor = slice(first, last + 1)
        else:
            rows = torch.arange(places.start, places.stop, device=device) // group
        return cos[..., rows, :], sin[..., rows, :]

    def _kept(self, block: int, size: int, device: torch.device) -> tuple[Tensor, Tensor]:
        key = (self._table, block, size, device, self._precise, self._part)
        if key not in _KEPT:
            # The cosines may be read again in training, where inference tensors are refused.
            with torch.inference_mode(mode=False):
                first = block * size
                positions = torch.arange(first, first + size, dtype=torch.float64, device=device)
                _KEPT[key] = self._cosines_at(positions)
            # With gradients, never drop this table's cosines: autograd keeps them in memory anyway,
            # and cached ones are shared by all layers.
            needed = self._table if torch.is_grad_enabled() else None
            for old in [old for old in _KEPT if old[0] is not needed][:-1]:
                if sum(cos.nbytes + sin.nbytes for cos, sin in _KEPT.values()) <= _KEPT_BYTES:
                    break
                del _KEPT[old]
        _KEPT.move_to_end(key)
        return _KEPT[key]

    def _cosines_at(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosine and sine: (positions, pairs), with bases per head (heads, ..., pairs)."""
        index, number = self._part
        inv_freq = frequencies(self._table, positions.device)
        if inv_freq.ndim == 2:
            inv_freq = inv_freq.chunk(number)[index]
        places = positions if positions.ndim == 2 else positions[:, None]
        angles = angles_at(places, inv_freq[..., None, :], self._table.positions)
        return cosines(angles, self._precise)


def check_heads(table: RopeTable, num_heads: int, num_kv_heads: int) -> None:
    """Raise SpecError unless a RoPE table with one row per head fits the model's heads."""
    if table.inv_freq.ndim == 1:
        return
    if table.inv_freq.shape[0] != num_heads:
        raise SpecError(
            "rope table",
            f"{table.inv_freq.shape[0]} rows",
            f"one row for each of the {num_heads} query heads",
            "return one row of frequencies per query head",
        )
    groups = table.inv_freq.reshape(num_kv_heads, num_heads // num_kv_heads, -1)
    if (groups != groups[:, :1]).any():
        raise SpecError(
            "rope table",
            "different bases within a key-value head",
            f"one base for the {num_heads // num_kv_heads} query heads of a key-value head",
            "give the same base to all query heads that share a key-value head",
        )


class _Piece(NamedTuple):
    """Consecutive tokens whose positions lie in the same block of cosines."""

    block: int
    size: int
    places: range
    """One number n per token: the token is rotated by row n // group of the block's cosines."""
    group: int


def _pieces(start: int, stop: int, group: int, shift: int, size: int) -> Iterator[_Piece]:
    """Split tokens start..stop - 1 into pieces of at most `size` tokens in one block each."""
    while start < stop:
        block = (start // group + shift) // size
        before = (block * size - shift) * group
        end = min(stop, before + size * group, start + size)
        yield _Piece(block, size, range(start - before, end - before), group)
        start = end


_KEPT: OrderedDict[tuple[object, ...], tuple[Tensor, Tensor]] = OrderedDict()
"""Cosines and sines of blocks, the least recently used block first."""
