"""p-RoPE: rotate only the share p of the pairs, those of the highest frequencies.

Design: the other pairs have frequency 0 and stay unrotated at every distance. The rotated pairs
keep the frequencies that they have in a head where all pairs rotate.
"""

import numpy as np
from pydantic import Field

from lce_core.evidence import EXACT, PHI2, frequencies
from lce_core.methods._clipped import Clipped
from lce_core.registry import Source
from lce_core.rope import Frequencies, RopeGeometry


class PRope(Clipped):
    """Sets the lowest frequencies to 0, given the share of pairs that rotate."""

    p: float = Field(default=0.75, ge=0, lt=1)
    """Share of the pairs that rotate, rounded down to whole pairs."""

    def weights(self, geometry: RopeGeometry) -> Frequencies:
        # As in transformers' "proportional": p times the even rotary dimension, then halved.
        rotated = int(self.p * geometry.rotary_dim // 2)
        return np.where(np.arange(geometry.num_pairs) < rotated, 1.0, 0.0)


METHOD = PRope
SOURCE = Source(
    paper="arXiv:2410.06205",
    place="section 6, p-RoPE; p = 0.75 has the lowest perplexity in its table 2",
    reference="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/"
    "modeling_rope_utils.py",
    differs="the paper pretrains with p-RoPE; here it can also be applied to a model that was"
    " trained with RoPE, frozen or tuned",
)
EVIDENCE = (
    frequencies(
        (1.0, 1.0e-1, 1.0e-2, 1.15478198e-3, 0.0, 0.0),
        origin=f"{EXACT}; 48 of 64 pairs rotate; transformers 5.23 'proportional' agrees",
        pairs=(0, 16, 32, 47, 48, 63),
    ),
    frequencies(
        (1.0, 1.77827941e-2, 0.0),
        origin=f"{EXACT}; 8 of 16 pairs rotate",
        pairs=(0, 7, 8),
        geometry=PHI2,
        p=0.5,
    ),
    frequencies(
        (1.0, 3.92418976e-2, 0.0),
        origin=f"{EXACT}; base 1e6, Gemma 4's share in layers of full attention",
        pairs=(0, 15, 16),
        base=1e6,
        p=0.25,
    ),
)
VERSION = 1
