"""YaRN: keep fast frequencies, interpolate slow ones, sharpen attention.

Design: a ramp determines the degree of interpolation of each pair. The paper's ramp is linear in
the rotations of a pair within the trained context. The ramp of the authors' code, transformers and
the published models is linear in the pair's index between two rounded limits. The two ramps differ
by up to 57 % for single pairs, so both are available. The code's ramp is the default.
"""

from typing import Any

from lce_core.evidence import EXACT, PHI2, frequencies, value
from lce_core.methods._by_parts import ScaledByParts, WithTemperature
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class Yarn(ScaledByParts, WithTemperature):
    """NTK-by-parts with a choice of two ramps, and with an attention temperature."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return self.table(geometry, self.scale_for(lengths))

    def stock_rope(self, lengths: ContextLengths) -> dict[str, Any] | None:
        return self.stated(self.scale_for(lengths), lengths.trained)


METHOD = Yarn
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="section 3.2, equations 10-13; section 3.3, equations 14, 15",
    reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
    differs="under partial rotary (Phi) the temperature acts on whole heads, as in the paper;"
    " transformers scales only the rotated elements",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 7.272906e-3, 5.961538e-3, 1.25e-4, 1.443477e-5),
        origin=f"{EXACT}; transformers 5.23 'yarn' agrees to 1.7e-7",
    ),
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 7.328788e-3, 5.983133e-3, 1.25e-4, 1.443477e-5),
        origin=f"{EXACT}; transformers 5.23 'yarn' with truncate false agrees to 4.3e-7",
        truncate=False,
    ),
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 3.571259e-3, 2.807778e-3, 1.25e-4, 1.443477e-5),
        origin=EXACT,
        ramp="paper",
    ),
    value("attention_factor", 1.2079441541679836, "transformers 5.23 'yarn', factor 8"),
    frequencies(
        (1.0, 0.56234133, 0.0046428568, 1.1114246e-5),
        origin="transformers 5.23 'yarn', factor 16, Phi-2",
        pairs=(0, 1, 8, 15),
        geometry=PHI2,
    ),
    value(
        "attention_factor", 1.2772588722239782, "transformers 5.23 'yarn', factor 16", geometry=PHI2
    ),
)
VERSION = 1
