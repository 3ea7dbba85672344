"""Position interpolation (PI): every frequency divided by the scale.

Design: dividing frequencies equals dividing positions. The scale is the same at every length, in
training and evaluation.
"""

from lce_core.evidence import EXACT, PHI2, frequencies
from lce_core.methods import ScaledMethod
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class PositionInterpolation(ScaledMethod):
    """Linear interpolation of positions."""

    family = "interpolation"

    scale: float | None = None
    """Divisor of all frequencies; None means target / trained context."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq() / self.scale_for(lengths))


METHOD = PositionInterpolation
SOURCE = Source(
    paper="arXiv:2306.15595",
    place="equation 8 and tables 7, 8 of LCEG (arXiv:2409.12181)",
    reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
    differs="angles are computed in float64; the reference trained on positions, frequencies"
    " and products rounded to bf16 (`train_positions: bf16_angles`)",
)
EVIDENCE = (
    frequencies(
        (1.25e-1, 1.082455e-1, 1.25e-2, 1.443477e-3, 1.25e-3, 1.25e-4, 1.443477e-5), origin=EXACT
    ),
    frequencies(
        (6.25e-2, 3.51463333e-2),
        origin="transformers 5.23 'linear', factor 16, Phi-2",
        pairs=(0, 1),
        geometry=PHI2,
    ),
)
VERSION = 1
