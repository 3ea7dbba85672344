"""Attention over a part of the keys, and the exact sum of two parts.

Softmax over a union of disjoint key sets follows from each set's output and the logarithm of its
softmax denominator. Schemes that see keys through different rotations, or through a window, are
computed as parts with fast kernels and merged; no (queries, keys) tensor ever exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from lce_core.errors import SpecError

_ROWS = 4096
"""Rows that are merged at a time."""


class Partial(NamedTuple):
    """Attention restricted to some keys, at least one for every query."""

    output: torch.Tensor
    """(batch, heads, queries, head_dim)"""
    lse: torch.Tensor
    """(batch, heads, queries) natural log of the softmax denominator, float32 or float64."""

    def rows(self, start: int, stop: int | None = None) -> Partial:
        """The parts of queries start..stop."""
        return Partial(self.output[:, :, start:stop], self.lse[:, :, start:stop])


def merge(first: Partial, second: Partial) -> Partial:
    """Attention over the union of two disjoint key sets seen by the same queries.

    Raises:
      SpecError: the parts record gradients, which would miss the share of the log-sum-exp.
    """
    output = _mixed(first, second)
    return Partial(output, torch.logaddexp(first.lse, second.lse))


def merge_rows(all_rows: Partial, start: int, part: Partial) -> None:
    """Merges a second part of rows start.. into `all_rows.output`, in place.

    The log-sum-exp of `all_rows` stays that of its own keys.

    Raises:
      SpecError: as in `merge`.
    """
    num_rows = part.lse.shape[2]
    for first in range(0, num_rows, _ROWS):  # so that float32 copies are small
        stop = min(first + _ROWS, num_rows)
        rows, some = all_rows.rows(start + first, start + stop), part.rows(first, stop)
        rows.output.copy_(_mixed(rows, some, out=rows.output))


def _mixed(first: Partial, second: Partial, out: torch.Tensor | None = None) -> torch.Tensor:
    """Outputs weighed by their shares of the common softmax denominator."""
    if first.output.requires_grad or second.output.requires_grad:
        raise SpecError(
            "attention in parts",
            "a forward pass that records gradients, through which torch cannot differentiate",
            "inference",
            "run under torch.inference_mode() or torch.no_grad()",
        )
    share = torch.sigmoid(second.lse - first.lse)[..., None]
    if first.output.dtype == share.dtype:
        return torch.lerp(first.output, second.output, share, out=out)
    mixed = torch.lerp(first.output.to(share.dtype), second.output.to(share.dtype), share)
    return mixed.to(first.output.dtype)


def concatenate(parts: Sequence[Partial]) -> Partial:
    """The same keys' parts of consecutive queries, as one."""
    if len(parts) == 1:
        return parts[0]
    # In the memory order of tokens, heads, elements, in which kernels write and models read.
    output = torch.cat([part.output.transpose(1, 2) for part in parts], dim=1).transpose(1, 2)
    return Partial(output, torch.cat([part.lse for part in parts], dim=2))
