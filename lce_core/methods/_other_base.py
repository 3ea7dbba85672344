"""One RoPE base for all pairs and lengths, other than the base model's.

Design: the methods differ in value, training recipe and paper, not in what they compute.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from lce_core.methods import Family, Method
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

Base = Annotated[float, Field(gt=1)]
"""A RoPE base: above 1, so that frequencies fall."""


class OtherBase(Method):
    """A RoPE base of the method's own."""

    family: ClassVar[Family] = "base"

    base: Base

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Frequencies of the base."""
        return RopeTable(geometry.inv_freq(self.base))
