"""NTK-aware interpolation, static: a larger RoPE base at every length.

Design: the slowest frequency is divided by exactly the scale, the fastest is kept, and all others
follow from the new base. Only rope_theta changes.
"""

from lce_core.evidence import EXACT, frequencies
from lce_core.methods import ScaledMethod
from lce_core.methods._ntk import ntk_frequencies
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class NtkAware(ScaledMethod):
    """NTK-aware scaling of the RoPE base, with one scale for all request lengths."""

    family = "base"

    scale: float | None = None
    """Divisor of the slowest frequency; None means target / trained context."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(ntk_frequencies(geometry, self.scale_for(lengths)))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.rope_table(geometry, lengths)


METHOD = NtkAware
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="appendix A.2, definition 3, equations 17-20",
    reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.378480e-1, 5.897172e-2, 4.150710e-3, 3.477664e-3, 2.050838e-4, 1.443477e-5),
        origin=EXACT,
    ),
    frequencies(
        (1.0, 8.121364e-1, 3.581488e-2, 1.579422e-3, 1.282706e-3, 4.593996e-5, 2.025933e-6),
        origin=f"{EXACT}; scale 57 is the one LCEG table 8 prints for NTK-64K",
        scale=57.0,
    ),
    frequencies(
        (1.0, 8.024905e-1, 2.958276e-2, 1.090529e-3, 8.751395e-4, 2.588904e-5, 9.543653e-7),
        origin=f"{EXACT}; scale 121 is what LCEG's formula and code give for NTK-64K",
        scale=121.0,
    ),
)
VERSION = 1
