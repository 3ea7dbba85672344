"""Rotary position embedding as data: sizes of a base model, and frequency tables of methods.

Tables are numpy float64, so listing, planning and documenting methods does not load torch.
`lce_core.attention.rotary` turns a table into cosines on the model's device.

Conventions (GPT-NeoX, as in transformers): pair i of a head consists of elements i and i + pairs;
the angle at position m is m * inv_freq[i]; inv_freq is in radians per token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import SpecError
from lce_core.recipe import Positions

Frequencies = NDArray[np.float64]


@dataclass(frozen=True)
class RopeGeometry:
    """Rotary embedding of a base model before any extension."""

    head_dim: int
    rotary_dim: int
    """Rotated elements of each head; less than head_dim for partial rotary (Phi-2: 32 of 80)."""
    num_heads: int
    num_kv_heads: int
    theta: float
    """RoPE base b: inv_freq[i] = b ** (-2i / rotary_dim)."""
    trained_context: int
    """Context of the base model in tokens (C)."""

    def __post_init__(self) -> None:
        if self.rotary_dim % 2 or not 0 < self.rotary_dim <= self.head_dim:
            raise SpecError(
                "rope geometry",
                f"rotary_dim {self.rotary_dim} of head_dim {self.head_dim}",
                "an even rotary_dim of at most head_dim",
                "correct the base model's geometry",
            )
        if self.num_heads % self.num_kv_heads:
            raise SpecError(
                "rope geometry",
                f"{self.num_heads} heads, {self.num_kv_heads} key-value heads",
                "key-value heads that divide the query heads",
                "correct the base model's geometry",
            )

    @property
    def num_pairs(self) -> int:
        """Rotated pairs of one head: rotary_dim / 2."""
        return self.rotary_dim // 2

    def inv_freq(self, theta: float | None = None) -> Frequencies:
        """Return the inverse frequencies (num_pairs,) of base `theta`, fastest first, unscaled.

        None uses the base model's own base.
        """
        exponents = np.arange(0, self.rotary_dim, 2, dtype=np.float64) / self.rotary_dim
        return np.asarray((self.theta if theta is None else theta) ** -exponents)


@dataclass(frozen=True)
class ContextLengths:
    """The three lengths in tokens from which a method may compute its frequencies and attention."""

    trained: int
    """Context of the base model (C)."""
    target: int
    """Context that the study extends to (C')."""
    request: int
    """Tokens of the request: prompt plus generated tokens, or a training row."""

    def __post_init__(self) -> None:
        if min(self.trained, self.target, self.request) < 1:
            raise SpecError(
                "context lengths", self, "lengths of at least 1 token", "correct the lengths"
            )


@dataclass(frozen=True, eq=False)
class RopeTable:
    """Frequencies and softmax factor that a method uses for one request length.

    `inv_freq` is (pairs,) for all heads or (heads, pairs) for head-adaptive methods.
    `attention_factor` multiplies both queries and keys, so it multiplies every logit by its square.
    With partial rotary this includes the unrotated elements, because the factor is applied to the
    softmax scaling.
    """

    inv_freq: Frequencies
    attention_factor: float = 1.0
    positions: Positions = "exact"
    """Rounding of positions when angles are computed. "exact" is correct; the other values
    reproduce the rounding of other software."""

    def __post_init__(self) -> None:
        if self.inv_freq.dtype != np.float64 or self.inv_freq.ndim not in (1, 2):
            raise SpecError(
                "rope table",
                f"{self.inv_freq.dtype} of shape {self.inv_freq.shape}",
                "inv_freq in float64 of shape (pairs,) or (heads, pairs)",
                "compute frequencies in numpy float64",
            )
        if not (np.isfinite(self.inv_freq).all() and (self.inv_freq > 0).all()):
            raise SpecError(
                "rope table",
                "a zero, negative or non-finite frequency",
                "positive and finite inverse frequencies",
                "check the method's scale and base",
            )
        if not (math.isfinite(self.attention_factor) and self.attention_factor > 0):
            raise SpecError(
                "rope table",
                f"an attention factor of {self.attention_factor}",
                "a positive and finite attention factor",
                "check the method's temperature",
            )
