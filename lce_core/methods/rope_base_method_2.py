"""Method 2 of Men et al. 2024: no pair turns further than in training, but B_m turns negative.

Design: the frequencies of slow pairs, from a split on, are divided by the scale. The fast pairs
before the split get a larger base, whose frequency at the split equals the divided one. In the
paper (Llama-2, scale 8) the split is pair 44 of 64. B_m is the paper's measure of how well
attention distinguishes a similar token from a random one (`lce_core.rope.bound`).
"""

import numpy as np
from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, frequencies
from lce_core.methods import ScaledMethod
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

_SHARE = 44 / 64
"""Fraction of the pairs before the split: in the paper, pairs 0 to 43 of 64."""


class BoundBroken(ScaledMethod):
    """Divides the frequencies of slow pairs by the scale, and gives fast pairs a larger base."""

    family = "interpolation"

    scale: float | None = None
    """Divisor of the frequencies from the split on; None means target / trained context."""
    split: int | None = Field(default=None, ge=1)
    """Index of the first pair whose frequency is divided; None means pair 44 of 64, or the same
    fraction of the pairs of other models."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        scale = self.scale_for(lengths)
        split = self._split(geometry)
        base = geometry.theta * scale ** (geometry.rotary_dim / (2 * split))
        fast, slow = geometry.inv_freq(base), geometry.inv_freq() / scale
        return RopeTable(np.where(np.arange(geometry.num_pairs) < split, fast, slow))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        super().check(geometry, lengths)
        split = self._split(geometry)
        if split >= geometry.num_pairs:
            last = geometry.num_pairs - 1
            raise SpecError(
                "rope_base_method_2.split",
                split,
                f"a number below {geometry.num_pairs}, the model's number of rotated pairs",
                f"write a split from 1 to {last}" if last else "use the method pi",
            )

    def _split(self, geometry: RopeGeometry) -> int:
        return round(_SHARE * geometry.num_pairs) if self.split is None else self.split


METHOD = BoundBroken
SOURCE = Source(
    paper="arXiv:2405.14591",
    place="section 5.5 and table 4, method 2",
    reference="own",
    differs="scale and split are parameters; the paper has 8 and 44",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.259908e-1, 4.694655e-2, 2.668284e-3, 2.203978e-3, 1.25e-4, 1.443477e-5),
        origin=EXACT,
    ),
    frequencies(
        (2.691131e-4, 2.222849e-4), origin=f"{EXACT}; before and at the split", pairs=(43, 44)
    ),
)
VERSION = 1
