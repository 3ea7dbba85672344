"""NTK-by-parts: keep fast frequencies, interpolate slow ones, leave attention as it is.

Design: YaRN without its temperature, with the paper's ramp, linear in the rotations a pair makes
within the trained context. The older "PartNTK" of the authors' code is another function.
Source: Peng et al. 2023, arXiv:2309.00071, section 3.2, equations 10-13.
"""

from __future__ import annotations

from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods import scale_or_ratio
from lce_core.methods._by_parts import ByParts
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class NtkByParts(ByParts):
    """Interpolation by parts, the ramp linear in rotations."""

    scale: float | None = None
    """Divisor of fully interpolated frequencies; None: target / trained context."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Frequencies mixed by the ramp."""
        scale = scale_or_ratio(self.scale, lengths, "ntk_by_parts")
        return RopeTable(self.by_parts(geometry, scale))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raises SpecError for a scale below 1 or a context too short for a ramp."""
        scale_or_ratio(self.scale, lengths, "ntk_by_parts")
        super().check(geometry, lengths)


METHOD = NtkByParts
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="section 3.2, equations 10-13",
    reference="own",
    differs="the authors' code mixes three ways of scaling under this name; the paper's equations"
    " are what is here",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 3.571259e-3, 2.807778e-3, 1.25e-4, 1.443477e-5), origin=EXACT
    ),
    value("attention_factor", 1.0, "the method has no temperature"),
)
VERSION = 1
