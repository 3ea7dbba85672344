"""Dynamic position interpolation (YaRN's paper): scale = request length / trained context.

Design: every frequency is divided by max(1, L / C), where C is the trained context. L counts prompt
and new tokens of the request, so that cached keys and new queries use one table.
"""

from lce_core.evidence import EXACT, frequencies
from lce_core.methods._ntk import Dynamic
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class DynamicPositionInterpolation(Dynamic):
    """Position interpolation with the scale max(1, request length / trained context)."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq() / self.scale_at(lengths))


METHOD = DynamicPositionInterpolation
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="section 3.4 and table 5, row PI, dynamic",
    reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
    differs="one table per request; the reference changes the table during generation",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
        origin=f"{EXACT}; the base model within its context",
        request=4096,
    ),
    frequencies(
        (1.25e-1, 1.082455e-1, 1.25e-2, 1.443477e-3, 1.25e-3, 1.25e-4, 1.443477e-5),
        origin=f"{EXACT}; static PI with scale 8 at 32768 tokens",
    ),
)
VERSION = 1
