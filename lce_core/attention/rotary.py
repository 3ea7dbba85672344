"""The rotary module of an extended model.

It stands in for the model's own. Methods that only change frequencies read cosines of the request's
table from it; schemes that rotate by themselves get its identity form, which leaves queries and
keys, and hence the cache, unrotated. The table is a plain attribute in float64, not a buffer:
casting or saving the model never touches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lce_core.attention.rotation import angles_at, cosines, frequencies
from lce_core.errors import SpecError
from lce_core.rope import RopeTable


class RequestRotary(nn.Module):
    """Cosines and sines of the request at hand; stands in for the model's rotary embedding.

    Args:
      rotary_dim: width of the returned tensors.
      identity: return cos = 1 and sin = 0, for attention that rotates by itself.
    """

    def __init__(self, rotary_dim: int, *, identity: bool) -> None:
        super().__init__()
        self.rotary_dim, self.identity = rotary_dim, identity
        self.table: RopeTable | None = None
        self.num_tokens = 0
        self._positions_are_known = False
        self.stock_precision = False
        """Round cosines to the dtype of the states, as transformers' own module does."""

    def begin(self, table: RopeTable, num_tokens: int) -> None:
        """Puts a table in force for positions 0..num_tokens - 1."""
        self.table, self.num_tokens = table, num_tokens

    def begin_rows(self, seeds: NDArray[np.uint64]) -> None:
        """Announces training rows, by a seed each; nothing about them is random here."""

    def what_is_in_force(self) -> tuple[object, ...]:
        """Equal for two requests whose passes of one token compute alike outside attention."""
        assert self.table is not None
        return self.table.inv_freq.tobytes(), self.table.attention_factor, self.table.positions

    def constants(self, device: torch.device) -> torch.Tensor:
        """What passes of the request read on `device`, beside weights and positions."""
        assert self.table is not None
        return frequencies(self.table, device)

    @contextmanager
    def of_known_positions(self) -> Iterator[None]:
        """Leaves the check of positions, which waits for the device, to the caller."""
        self._positions_are_known = True
        try:
            yield
        finally:
            self._positions_are_known = False

    def check_length(self, length: int) -> None:
        """Refuses a text of `length` tokens that is longer than the request.

        Raises:
          SpecError: it is.
        """
        if length > self.num_tokens:
            raise SpecError(
                "position_ids",
                f"{length} tokens",
                f"at most the {self.num_tokens} tokens of the request",
                "begin the request with prompt plus new tokens",
            )

    def forward(
        self, x: torch.Tensor, position_ids: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine (batch or 1, tokens or 1, rotary_dim).

        They have at least float32, in which layers then rotate (`lce_core.attention.layers`). Where
        attention rotates by itself, or with `stock_precision`, they have the dtype of `x`.

        Raises:
          SpecError: no request was begun, or the positions are not those of one.
        """
        if self.table is None:
            raise SpecError(
                "extended model",
                "a forward pass outside any request",
                "a request that was begun before",
                "call begin_request(num_tokens) with prompt plus new tokens",
            )
        self._check(position_ids)
        if self.identity:
            one = torch.ones(1, 1, self.rotary_dim, dtype=x.dtype, device=x.device)
            # Layers need not multiply by them: what multiplies leaves everything as it is, too.
            one.rotates_nothing = True  # type: ignore[attr-defined]
            return one, torch.zeros_like(one)
        return self._of(position_ids[..., None].double(), frequencies(self.table, x.device), x)

    def _of(
        self, positions: torch.Tensor, inv_freq: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        kind = self.table.positions if self.table else "exact"
        precise = torch.promote_types(x.dtype, torch.float32)
        dtype = x.dtype if self.stock_precision else precise
        cos, sin = cosines(angles_at(positions, inv_freq, kind), dtype)
        return torch.cat((cos, cos), dim=-1), torch.cat((sin, sin), dim=-1)

    def _check(self, position_ids: torch.Tensor) -> None:
        if self._positions_are_known:
            return
        length = position_ids.shape[-1]
        # Reading values from a GPU waits for it. Attention that rotates by itself takes positions
        # for granted, so there it is done, once for all layers; else the length must do.
        if self.identity or position_ids.device.type == "cpu":
            broken = (position_ids.diff(dim=-1) != 1).any()
            gaps, last = torch.stack((broken.to(position_ids.dtype), position_ids.max())).tolist()
            if self.identity and gaps:
                raise SpecError(
                    "position_ids",
                    "gaps or restarts",
                    "consecutive positions within a request",
                    "send one document per row, unpadded",
                )
            length = last + 1
        self.check_length(length)
