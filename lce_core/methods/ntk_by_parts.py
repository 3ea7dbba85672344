"""NTK-by-parts: keep fast frequencies, interpolate slow ones, leave attention unchanged.

Design: YaRN without its temperature, with the paper's ramp, which is linear in the rotations of a
pair within the trained context. The older "PartNTK" of the authors' code is a different function.
"""

from __future__ import annotations

from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods import ScaledMethod
from lce_core.methods._by_parts import ByParts
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class NtkByParts(ScaledMethod, ByParts):
    """Keeps fast frequencies, divides slow ones by the scale, and mixes both between."""

    scale: float | None = None
    """Divisor of fully interpolated frequencies; None means target / trained context."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(self.by_parts(geometry, self.scale_for(lengths)))


METHOD = NtkByParts
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="section 3.2, equations 10-13",
    reference="own",
    differs="lce computes the paper's equations; the authors' code mixes three scalings under this"
    " name",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 3.571259e-3, 2.807778e-3, 1.25e-4, 1.443477e-5), origin=EXACT
    ),
    value("attention_factor", 1.0, "the method has no temperature"),
)
VERSION = 1
