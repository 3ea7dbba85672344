"""Changes to a model besides frequencies and attention, as plain data.

`lce_core.methods` declares them; `lce_core.extension.extending` and `lce_core.training.assembly`
apply them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoRA:
    """Which weights a method trains: low-rank updates of some layers, and parameters trained whole.

    Source: Hu et al. 2021, arXiv:2106.09685.
    """

    rank: int
    alpha: float
    """The update is alpha / rank times the product of its factors."""
    targets: tuple[str, ...]
    """Linear layers to update, given by the last part of their names."""
    whole: tuple[str, ...]
    """Parameters whose names contain one of these are trained directly; all others are frozen."""


@dataclass(frozen=True)
class TokenInsertion:
    """A token that the method inserts after every `block - 1` tokens of text."""

    block: int
    """Tokens of a block, including the inserted one."""
    train_length: int
    """Text tokens in one training sequence, inserted tokens not counted."""
