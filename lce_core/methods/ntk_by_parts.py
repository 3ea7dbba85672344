"""NTK-by-parts: keep fast frequencies, interpolate slow ones, leave attention unchanged.

Design: YaRN without its temperature, with the paper's ramp, which is linear in the rotations of a
pair within the trained context. The older "PartNTK" of the authors' code is a different function.
"""

from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods._by_parts import ScaledByParts
from lce_core.registry import Source


class NtkByParts(ScaledByParts):
    """Keeps fast frequencies, divides slow ones by the scale, and mixes both between."""


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
