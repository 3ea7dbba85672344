"""CoPE: lower the lowest frequencies gradually to 0, along half a cosine.

Design: of the last n pairs, pair k = 0 .. n - 1 has its frequency multiplied by
(1 + cos(pi k / (n - 1))) / 2. The last pair is not rotated at all. A sharp cut (`hard_clip`) would
let attention oscillate with the distance, as the spectrum of a cut signal does.
"""

import math

import numpy as np

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, PHI2, frequencies
from lce_core.methods._clipped import ClippedLast
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry


class Cope(ClippedLast):
    """Lowers the lowest frequencies along half a cosine, given their number."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        super().check(geometry, lengths)
        if (count := self.count(geometry)) < 2:
            raise SpecError(
                "cope.num_clipped",
                count,
                "at least 2, because the first of the clipped pairs keeps its frequency",
                "write a larger number, or remove the key",
            )

    def clipped(self, count: int) -> Frequencies:
        return (1 + np.cos(np.linspace(0, math.pi, count))) / 2


METHOD = Cope
SOURCE = Source(
    paper="arXiv:2602.05258",
    place="CoPE, soft clipping of low frequencies",
    reference="github.com/hrlics/CoPE@ed52ba5e2d80aaea7577144109c572e93e84e537",
    differs="the number of clipped pairs scales with the model's pairs. The authors train with"
    " base 1e7; here the base is the model's own unless the study states one",
)
EVIDENCE = (
    frequencies(
        (1.0, 1.77827941e-3, 1.52942523e-3, 2.63590492e-4, 1.07164673e-5, 0.0),
        origin=f"{EXACT}; pairs 44 to 63 of 64 are clipped; the reference's rule in float32 agrees"
        " to 6e-8",
        pairs=(0, 44, 45, 53, 60, 63),
    ),
    frequencies(
        (1.0, 1.98095678e-5, 1.18892169e-5, 8.64081568e-7, 1.65025723e-8, 0.0),
        origin=f"{EXACT}; base 1e7 of the authors' training; the reference's rule in float32"
        " agrees to 8e-8",
        pairs=(0, 43, 45, 53, 60, 63),
        base=1e7,
        num_clipped=20,
    ),
    frequencies(
        (1.0, 1.77827941e-3, 8.53553391e-4, 4.63104841e-5, 0.0),
        origin=f"{EXACT}; 5 of 16 pairs are clipped",
        pairs=(0, 11, 12, 14, 15),
        geometry=PHI2,
    ),
)
EXAMPLES: Examples = ({}, {"num_clipped": 3})
VERSION = 1
