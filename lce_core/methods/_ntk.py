"""The RoPE base of all NTK-aware methods, and base classes of those whose scale is dynamic.

Source: Peng et al. 2023, arXiv:2309.00071, definition 3; dynamic form: transformers' "dynamic".
"""

from typing import ClassVar

from pydantic import Field

from lce_core.errors import SpecError
from lce_core.methods import Family, Method, checked_scale
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable


def ntk_frequencies(geometry: RopeGeometry, scale: float) -> Frequencies:
    """Return inverse frequencies (pairs,): the slowest divided by `scale`, the fastest kept.

    The base becomes theta * scale ** (d / (d - 2)) for rotary dimension d.
    """
    dim = geometry.rotary_dim
    if dim == 2:
        raise SpecError(
            "NTK-aware scaling",
            "a model with a single rotated pair (rotary_dim 2)",
            "at least two pairs, a fastest and a slowest",
            "use the method pi",
        )
    return geometry.inv_freq(geometry.theta * scale ** (dim / (dim - 2)))


def dynamic_scale(factor: float, length: int, trained: int) -> float:
    """Return factor * length / trained - (factor - 1), at least 1; lengths are in tokens."""
    return factor * max(length, trained) / trained - (factor - 1)


class Dynamic(Method):
    """Base class of methods with a scale that grows with the request's length."""

    family: ClassVar[Family] = "dynamic"

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return lengths.request > self.constant_up_to(lengths)

    def growth(self, lengths: ContextLengths) -> float:
        """Return by how much the scale grows when a request is one trained context longer."""
        return 1.0

    def constant_up_to(self, lengths: ContextLengths) -> int:
        """Return the length in tokens up to which all requests have the same, smallest scale."""
        return lengths.trained

    def scale_at(self, lengths: ContextLengths) -> float:
        length = max(self.constant_up_to(lengths), lengths.request)
        return dynamic_scale(self.growth(lengths), length, lengths.trained)


class DynamicNtk(Dynamic):
    """NTK-aware scaling by `Dynamic.scale_at`."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(ntk_frequencies(geometry, self.scale_at(lengths)))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.rope_table(geometry, lengths)


class TargetNtk(DynamicNtk):
    """NTK-aware scaling that is constant for requests up to the target context."""

    factor: float | None = Field(default=None, gt=0)
    """Increase s of the scale when a request is one trained context longer; None means target
    context / (2 * trained context)."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        checked_scale(self, None, lengths)
        super().check(geometry, lengths)

    def growth(self, lengths: ContextLengths) -> float:
        return lengths.target / (2 * lengths.trained) if self.factor is None else self.factor

    def constant_up_to(self, lengths: ContextLengths) -> int:
        return lengths.target
