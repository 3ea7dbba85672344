"""MrRoPE, TailSpline and its binomial form: divide each pair by a power of the scale.

Design: RoPE is a number in mixed radix, whose digits are the turns of successive pairs. Extension
multiplies the radix of each digit on YaRN's ramp, so that the product over the ramp is the scale.
The forms differ only in how they share the scale's logarithm among the n steps of the ramp: in
equal parts, or in proportion to q, n (n + 1) - q (q - 1) or q (n + 1 - q) at step q. YaRN's ramp
mixes frequencies instead. Attention is sharpened as in YaRN.
"""

from typing import Literal

import numpy as np
from pydantic import Field

from lce_core.evidence import EXACT, PHI2, frequencies, value
from lce_core.methods._by_parts import ScaledByParts
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable
from lce_core.rope.stated import ramp_ends, temperature


class MrRope(ScaledByParts):
    """Powers of the scale along YaRN's ramp, with an attention temperature."""

    form: Literal["uniform", "progressive", "tail_spline", "binomial"] = "progressive"
    """How the exponent grows along the ramp: in equal steps (MrRoPE-Uni), ever faster (MrRoPE-Pro),
    ever slower (TailSpline), or fastest in the middle (TailSpline's binomial form)."""
    attention_factor: float | None = Field(default=None, gt=0)
    """Factor that multiplies both queries and keys; None means 0.1 ln(scale) + 1."""

    def interpolated(self, geometry: RopeGeometry) -> Frequencies:
        """Return for each pair the exponent of the scale that divides it (pairs,), from 0 to 1."""
        low, high = ramp_ends(geometry, self.beta_fast, self.beta_slow, truncate=True)
        n = high - low
        q = (np.arange(geometry.num_pairs) - low).clip(0, n)
        match self.form:
            case "uniform":
                exponents = q / n
            case "progressive":
                exponents = q * (q + 1) / (n * (n + 1))
            case "tail_spline":
                exponents = q * (3 * n * n + 3 * n + 1 - q * q) / (n * (n + 1) * (2 * n + 1))
            case "binomial":
                exponents = q * (q + 1) * (3 * n + 2 - 2 * q) / (n * (n + 1) * (n + 2))
        return np.asarray(exponents)

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        scale = self.scale_for(lengths)
        factor = self.attention_factor
        return RopeTable(
            geometry.inv_freq() / scale ** self.interpolated(geometry),
            temperature(scale) if factor is None else factor,
        )


METHOD = MrRope
SOURCE = Source(
    paper="arXiv:2601.22181",
    place="uniform and progressive radix; TailSpline is unpublished",
    reference="github.com/mattian7/mrRoPE@d1a6f31eba7fbf5f6ad5e31c948a6f8f9f148c73",
    differs="the reference fixes the limits of `uniform` to 32 and 1 rotations",
)
_PAIRS = (20, 21, 32, 45, 46)
"""First and last pair of Llama-2's ramp, and some between."""
EVIDENCE = (
    frequencies(
        (5.62341325e-2, 4.49537338e-2, 3.82991589e-3, 2.08518333e-4, 1.66690179e-4),
        origin=f"{EXACT}; the reference agrees to 4.2e-7",
        pairs=_PAIRS,
        form="uniform",
    ),
    frequencies(
        (5.62341325e-2, 4.84091095e-2, 6.29960525e-3, 2.24546126e-4, 1.66690179e-4),
        origin=f"{EXACT}; the reference agrees to 4.2e-7",
        pairs=_PAIRS,
        form="progressive",
    ),
    frequencies(
        (5.09325846e-2, 3.71498572e-3, 1.11142463e-5),
        origin=f"{EXACT}; the reference agrees to 4.2e-7",
        pairs=(5, 8, 15),
        geometry=PHI2,
        form="progressive",
    ),
    frequencies(
        (5.62341325e-2, 4.32894132e-2, 2.68060199e-3, 1.94176449e-4, 1.66690179e-4),
        origin=EXACT,
        pairs=_PAIRS,
        form="tail_spline",
    ),
    frequencies(
        (5.62341325e-2, 4.78996808e-2, 3.96850263e-3, 1.95693948e-4, 1.66690179e-4),
        origin=EXACT,
        pairs=_PAIRS,
        form="binomial",
    ),
    frequencies(
        (4.46330606e-2, 1.9198262e-3, 1.11142463e-5),
        origin=EXACT,
        pairs=(5, 8, 15),
        geometry=PHI2,
        form="binomial",
    ),
    value("attention_factor", 1.2079441541679836, "transformers 5.23 'yarn', factor 8"),
)
EXAMPLES: Examples = ({}, {"form": "uniform"}, {"form": "tail_spline"}, {"form": "binomial"})
VERSION = 1
