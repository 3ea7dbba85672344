"""Rotary position embedding as data: the sizes of a base model, and a method's frequency tables.

Tables are numpy float64, so methods can be listed, planned and documented without importing torch.
`lce_core.attention.rotary` turns a table into cosines and sines on the model's device.

Conventions (GPT-NeoX, as in transformers): pair i of a head consists of elements i and i + pairs
(`lce_core.attention.rotary` reorders the heads of other architectures); the angle at position m is
m * inv_freq[i]; inv_freq is in radians per token.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from lce_core.errors import SpecError
from lce_core.recipe import Positions

Frequencies = NDArray[np.float64]


@dataclass(frozen=True)
class Scaling:
    """Scaling of the RoPE frequencies with which a base model was published and trained."""

    rope_type: str
    """`rope_type` of config.json, such as "llama3"."""
    multipliers: tuple[float, ...]
    """Each pair's frequency divided by that of the unscaled base, `theta ** (-2i / rotary_dim)`."""
    attention_factor: float = 1.0
    """Factor of queries and keys. It multiplies the factor of a method's table."""


@dataclass(frozen=True)
class RopeGeometry:
    """Sizes of a base model's rotary embedding, before any context-extension method."""

    head_dim: int
    rotary_dim: int
    """Rotated elements of each head; less than head_dim with partial rotary (Phi-2: 32 of 80)."""
    num_heads: int
    num_kv_heads: int
    theta: float
    """RoPE base b: inv_freq[i] = b ** (-2i / rotary_dim)."""
    trained_context: int
    """Context in tokens with which the base model was trained (C in formulas)."""
    scaling: Scaling | None = None
    """Scaling that the base model already has. Methods then extend the scaled frequencies."""
    unrotated: tuple[int, ...] = ()
    """Layers that the base model does not rotate, counted from 0. No method changes them."""

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
                "a number of heads that is a multiple of the key-value heads",
                "correct the base model's geometry",
            )

    @property
    def num_pairs(self) -> int:
        """Number of rotated pairs of elements in a head: rotary_dim / 2."""
        return self.rotary_dim // 2

    def inv_freq(self, theta: float | None = None) -> Frequencies:
        """Return the inverse frequencies (num_pairs,) of a RoPE base with the model's scaling."""
        exponents = np.arange(0, self.rotary_dim, 2, dtype=np.float64) / self.rotary_dim
        plain = np.asarray((self.theta if theta is None else theta) ** -exponents)
        return plain if self.scaling is None else plain * np.asarray(self.scaling.multipliers)

    @property
    def attention_factor(self) -> float:
        """Attention factor of the base model itself: 1, unless its scaling states another."""
        return 1.0 if self.scaling is None else self.scaling.attention_factor

    def pair_with(self, rotations: float) -> float:
        """Return the index, as a real number, of the pair that would make this many rotations.

        Rotations are counted within the trained context. Between the pairs of a scaled base, and
        beyond its last one, the logarithm of the frequency is linear in the index.
        """
        ratio = self.trained_context / (2 * math.pi * rotations)
        if self.scaling is None:
            return self.rotary_dim * math.log(ratio) / (2 * math.log(self.theta))
        periods = np.maximum.accumulate(-np.log(self.inv_freq()))
        last, step = self.num_pairs - 1, 2 * math.log(self.theta) / self.rotary_dim
        beyond = max(0.0, math.log(ratio) - float(periods[-1])) / step
        return float(np.interp(math.log(ratio), periods, np.arange(last + 1))) + beyond


@dataclass(frozen=True)
class ContextLengths:
    """The three lengths in tokens from which a method may compute its frequencies and attention."""

    trained: int
    """Context with which the base model was trained (C)."""
    target: int
    """Context to which the study extends the model (C')."""
    request: int
    """Length of the request: prompt plus generated tokens, a window to score, or a training row."""

    def __post_init__(self) -> None:
        if min(self.trained, self.target, self.request) < 1:
            raise SpecError(
                "context lengths",
                f"trained {self.trained}, target {self.target}, request {self.request}",
                "lengths of at least 1 token",
                "correct the length that is below 1",
            )


@dataclass(frozen=True, eq=False)
class RopeTable:
    """Frequencies and softmax factor that a method uses for one request length.

    `inv_freq` has shape (pairs,), or (heads, pairs) for one base per head. A frequency of 0 leaves
    its pair unrotated. `attention_factor` multiplies both queries and keys, so every attention
    score is multiplied by its square, with partial rotary also that of unrotated elements.
    """

    inv_freq: Frequencies
    attention_factor: float = 1.0
    positions: Positions = "exact"
    """Rounding of positions in angles; other values than "exact" reproduce other software."""

    @cached_property
    def rotates(self) -> bool:
        """False if all frequencies are 0, so that queries and keys stay as they are."""
        return bool(self.inv_freq.any())

    def agrees(self, other: RopeTable, tolerance: float) -> bool:
        """Return True if no number differs by more than this relative difference."""
        if self.inv_freq.shape != other.inv_freq.shape:
            return False
        one, two = (np.append(table.inv_freq, table.attention_factor) for table in (self, other))
        return bool(np.allclose(one, two, rtol=tolerance, atol=0))

    def __post_init__(self) -> None:
        if self.inv_freq.dtype != np.float64 or self.inv_freq.ndim not in (1, 2):
            raise SpecError(
                "rope table",
                f"{self.inv_freq.dtype} of shape {self.inv_freq.shape}",
                "inv_freq in float64 of shape (pairs,) or (heads, pairs)",
                "compute frequencies in numpy float64",
            )
        if not (np.isfinite(self.inv_freq).all() and (self.inv_freq >= 0).all()):
            raise SpecError(
                "rope table",
                "a negative or non-finite frequency",
                "finite inverse frequencies of at least 0, where 0 leaves a pair unrotated",
                "check the method's scale and base",
            )
        if not (math.isfinite(self.attention_factor) and self.attention_factor > 0):
            raise SpecError(
                "rope table",
                f"an attention factor of {self.attention_factor}",
                "a positive and finite attention factor",
                "check the method's temperature",
            )
