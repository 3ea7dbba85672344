"""LoRA and inserted tokens as plain data, which methods return without importing torch.

`lce_core.extension.extending` inserts the token; `lce_core.training.assembly` applies LoRA.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoRA:
    """The weights that fine-tuning trains: low-rank updates (arXiv:2106.09685), and `whole`."""

    rank: int
    alpha: float
    """A low-rank update is the product of its two factors times alpha / rank."""
    targets: tuple[str, ...]
    """Names of the linear layers to update, such as "q_proj"."""
    whole: tuple[str, ...]
    """Parameters whose names contain one of these strings are trained directly, no others."""


@dataclass(frozen=True)
class TokenInsertion:
    """A token that the method inserts after every `block - 1` tokens of text."""

    block: int
    """Number of tokens in a block, including the inserted token."""
    train_length: int
    """Number of text tokens in one training sequence, without inserted tokens."""
