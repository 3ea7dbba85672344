"""HardClip: set the lowest frequencies to 0, so that their pairs are not rotated.

Design: p-RoPE with the number of unrotated pairs as parameter. It is the control of CoPE, which
lowers the same frequencies gradually.
"""

import numpy as np

from lce_core.evidence import EXACT, frequencies
from lce_core.methods._clipped import ClippedLast
from lce_core.registry import Source
from lce_core.rope import Frequencies


class HardClip(ClippedLast):
    """Sets the lowest frequencies to 0, given their number."""

    def clipped(self, count: int) -> Frequencies:
        return np.zeros(count)


METHOD = HardClip
SOURCE = Source(
    paper="arXiv:2602.05258",
    place="HardClip, the comparison method",
    reference="github.com/hrlics/CoPE@ed52ba5e2d80aaea7577144109c572e93e84e537",
    differs="the number of clipped pairs scales with the model's pairs. The authors train with"
    " base 1e7; here the base is the model's own unless the study states one",
)
EVIDENCE = (
    frequencies(
        (1.0, 1.0e-2, 2.05352503e-3, 0.0, 0.0),
        origin=f"{EXACT}; pairs 44 to 63 of 64 are not rotated",
        pairs=(0, 32, 43, 44, 63),
    ),
    frequencies(
        (1.0, 1.98095678e-5, 0.0),
        origin=f"{EXACT}; base 1e7 of the authors' training, pairs 44 to 63 are not rotated",
        pairs=(0, 43, 44),
        base=1e7,
        num_clipped=20,
    ),
)
VERSION = 1
