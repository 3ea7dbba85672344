"""The change of base that all NTK-aware methods share, and the two dynamic forms.

Design: `DynamicNtk` is the one implementation of a scale that follows the request's length; its
subclasses say how fast it grows and up to which length it is constant.
Source: Peng et al. 2023, arXiv:2309.00071, definition 3; dynamic form: transformers' "dynamic".
"""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from lce_core.errors import SpecError
from lce_core.methods import Family, Method, checked_scale
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable


def ntk_frequencies(geometry: RopeGeometry, scale: float) -> Frequencies:
    """Inverse frequencies (pairs,) with the slowest divided by exactly `scale`, the fastest kept.

    The base becomes theta * scale ** (d / (d - 2)) for rotary dimension d.
    """
    dim = geometry.rotary_dim
    if dim == 2:
        raise SpecError(
            "NTK-aware scaling",
            "rotary_dim 2, a single pair that is fastest and slowest at once",
            "at least two pairs",
            "use pi",
        )
    return geometry.inv_freq(geometry.theta * scale ** (dim / (dim - 2)))


def dynamic_scale(factor: float, length: int, trained: int) -> float:
    """Scale factor * length / trained - (factor - 1) of a request, 1 up to the trained context."""
    return factor * max(length, trained) / trained - (factor - 1)


class DynamicNtk(Method):
    """NTK-aware scaling by factor * length / trained - (factor - 1)."""

    family: ClassVar[Family] = "dynamic"

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Frequencies of the base for the request's length."""
        return RopeTable(ntk_frequencies(geometry, self.scale_at(lengths)))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raises SpecError where the geometry has a single pair."""
        self.rope_table(geometry, lengths)

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        """Beyond the length up to which the scale is constant."""
        return lengths.request > self.constant_up_to(lengths)

    def growth(self, lengths: ContextLengths) -> float:
        """The factor: what one trained context of length adds to the scale."""
        raise NotImplementedError

    def constant_up_to(self, lengths: ContextLengths) -> int:
        """Longest request in tokens with the smallest scale."""
        return lengths.trained

    def scale_at(self, lengths: ContextLengths) -> float:
        """Scale of the request at hand."""
        length = max(self.constant_up_to(lengths), lengths.request)
        return dynamic_scale(self.growth(lengths), length, lengths.trained)


class TargetNtk(DynamicNtk):
    """NTK-aware scaling fixed by the target context, for requests up to it."""

    factor: float | None = Field(default=None, gt=0)
    """Growth s of the scale; None: target / (2 * trained) context."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raises SpecError for a target below the trained context."""
        checked_scale(self, None, lengths)
        super().check(geometry, lengths)

    def growth(self, lengths: ContextLengths) -> float:
        """The given factor, or half the target / trained context."""
        return lengths.target / (2 * lengths.trained) if self.factor is None else self.factor

    def constant_up_to(self, lengths: ContextLengths) -> int:
        """The target context."""
        return lengths.target
