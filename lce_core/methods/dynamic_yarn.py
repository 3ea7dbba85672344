"""Dynamic YaRN: the scale of frequencies and temperature = request length / trained context.

Design: YaRN with scale max(1, L / C), where C is the trained context. L counts prompt and new
tokens of the request, so that cached keys and new queries use one table. With attention_factor 1
and ramp "paper" this is the dynamic NTK-by-parts of YaRN's table 5.
"""

from typing import Any

from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods._by_parts import WithTemperature
from lce_core.methods._ntk import Dynamic
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class DynamicYarn(Dynamic, WithTemperature):
    """YaRN with the scale max(1, request length / trained context)."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return self.table(geometry, self.scale_at(lengths))

    def stock_rope(self, lengths: ContextLengths) -> dict[str, Any] | None:
        return self.stated(self.scale_at(lengths), lengths.trained)


METHOD = DynamicYarn
SOURCE = Source(
    paper="arXiv:2309.00071",
    place="section 3.4 and table 5, row YaRN, dynamic",
    reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
    differs="one table per request; the reference changes the table during generation. For"
    " fine-tuned models the reference's two classes divide the length by different contexts; lce"
    " divides by the base model's trained context",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
        origin=f"{EXACT}; the base model within its context",
        request=4096,
    ),
    value("attention_factor", 1.0, "the base model within its context", request=4096),
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 7.272906e-3, 5.961538e-3, 1.25e-4, 1.443477e-5),
        origin=f"{EXACT}; static YaRN with scale 8 at 32768 tokens",
    ),
    value("attention_factor", 1.2079441541679836, "transformers 5.23 'yarn', factor 8"),
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 3.571259e-3, 2.807778e-3, 1.25e-4, 1.443477e-5),
        origin=f"{EXACT}; NTK-by-parts with scale 8 at 32768 tokens",
        ramp="paper",
        attention_factor=1.0,
    ),
)
VERSION = 1
