"""Rotation of queries and keys by a RoPE table, inside kernels that own their positions.

Angles are computed in float64 from the table, cosines are kept in float32 (float64 for float64
models), and the product is taken there before it is rounded to the model's dtype: no position is
ever rounded, unless the table says so. Cosines of positions 0..n are computed once and shared by
all layers of a request.
"""

from __future__ import annotations

from functools import lru_cache

import torch

from lce_core.errors import SpecError
from lce_core.recipe import Positions
from lce_core.rope import RopeTable

_ROUND_UP = 1024
"""Cosines are computed for a multiple of this many positions, so that decoding reuses them."""


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
      length: positions are below this.
      like: a query or key; gives device and precision.
    """

    def __init__(self, table: RopeTable, length: int, like: torch.Tensor) -> None:
        rounded = -(-length // _ROUND_UP) * _ROUND_UP
        precise = torch.promote_types(like.dtype, torch.float32)
        self._cos, self._sin = _table(table, rounded, like.device, precise)

    def __call__(
        self, states: torch.Tensor, positions: torch.Tensor | slice, *, back: bool = False
    ) -> torch.Tensor:
        """Rotates states (batch, heads, tokens, head_dim) to integer positions.

        Elements beyond twice the number of pairs pass through (partial rotary). With one base per
        head, key-value heads take the base that their query heads share.

        Args:
          states: queries or keys.
          positions: (tokens,) or (1,), or a slice of 0..length - 1, which copies no cosines.
          back: rotate to the negative of `positions`.
        """
        cos = self._of_heads(self._cos, states.shape[1])[..., positions, None, :]
        sin = self._of_heads(self._sin, states.shape[1])[..., positions, :]
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


@lru_cache(maxsize=4)
def _table(
    table: RopeTable, length: int, device: torch.device, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    # Kept, and read in training too, where tensors born in inference mode are refused.
    with torch.inference_mode(mode=False):
        positions = torch.arange(length, dtype=torch.float64, device=device)
        inv_freq = frequencies(table, device)[..., None, :]
        return cosines(angles_at(positions[:, None], inv_freq, table.positions), dtype)
