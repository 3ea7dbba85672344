"""What a method changes about a model besides frequencies and attention, as plain data.

`lce_core.methods` states it, `lce_core.extension.extending` and `lce_core.training.assembly`
carry it out.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class LoRA:
    """Low-rank updates of some linear layers, and what is trained whole beside them.

    Source: Hu et al. 2021, arXiv:2106.09685.
    """

    rank: int
    alpha: float
    """The update is alpha / rank times the product of its factors."""
    targets: tuple[str, ...]
    """Last name parts of the linear layers that get one."""
    whole: tuple[str, ...]
    """Parameters whose name contains one of these are trained as they are; all others are kept."""


@dataclass(frozen=True)
class TokenInsertion:
    """A token of its own after every `block - 1` tokens of text."""

    block: int
    """Tokens of a block, the inserted one included."""
    train_length: int
    """Text tokens that one training sequence holds."""
