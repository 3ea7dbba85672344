"""Base class of methods that rotate the pairs of lowest frequency less, or not at all.

Without rotation (frequency 0) a pair compares queries and keys regardless of their distance.
"""

from typing import ClassVar

import numpy as np
from pydantic import Field

from lce_core.errors import SpecError
from lce_core.methods import Base, Family, Method
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable

_CLIPPED, _PAIRS = 20, 64
"""Pairs that CoPE clips, and pairs of a head in its model, Llama-3-8B."""


class Clipped(Method):
    """Multiplies each frequency by a weight (`weights`), for all request lengths."""

    family: ClassVar[Family] = "interpolation"

    base: Base | None = None
    """RoPE base of the weighted frequencies; None means the base model's own."""

    def weights(self, geometry: RopeGeometry) -> Frequencies:
        """Return for each pair the factor of its frequency (pairs,), from 0 to 1."""
        raise NotImplementedError

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(self.weights(geometry) * geometry.inv_freq(self.base))


class ClippedLast(Clipped):
    """Clips a given number of the lowest frequencies."""

    num_clipped: int | None = Field(default=None, ge=1)
    """Number of pairs of lowest frequency to clip; None means 5/16 of the pairs, the paper's 20
    of 64, rounded and at least 2."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        if self.count(geometry) > geometry.num_pairs:
            raise SpecError(
                f"{self.plugin_name}.num_clipped",
                self.count(geometry),
                f"at most the model's {geometry.num_pairs} frequency pairs",
                "write a smaller number",
            )

    def count(self, geometry: RopeGeometry) -> int:
        if self.num_clipped is not None:
            return self.num_clipped
        return max(2, round(geometry.num_pairs * _CLIPPED / _PAIRS))

    def weights(self, geometry: RopeGeometry) -> Frequencies:
        count = self.count(geometry)
        return np.concatenate([np.ones(geometry.num_pairs - count), self.clipped(count)])

    def clipped(self, count: int) -> Frequencies:
        """Return the weights of the `count` pairs of lowest frequency (count,)."""
        raise NotImplementedError
