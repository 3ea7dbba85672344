"""Llama 3.1's scaling: keep fast frequencies, divide slow ones, leave attention unchanged.

Design: NTK-by-parts with other limits. A pair whose wavelength is at most the trained context / 4
keeps its frequency; a pair whose wavelength is at least the trained context is divided by the
scale. Between them the share of the kept frequency is linear in the pair's rotations.
"""

from typing import Any

from pydantic import Field

from lce_core.evidence import EXACT, PHI2, frequencies, value
from lce_core.methods._by_parts import ScaledByParts
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry


class Llama3(ScaledByParts):
    """NTK-by-parts with the limits of Llama 3.1."""

    beta_fast: float = Field(default=4.0, gt=0)
    """A pair that makes at least this many rotations within the trained context stays unchanged;
    `high_freq_factor` in transformers."""
    beta_slow: float = Field(default=1.0, gt=0)
    """The frequency of a pair that makes at most this many rotations within the trained context is
    divided by the full scale; `low_freq_factor` in transformers."""

    def stock_rope(self, lengths: ContextLengths) -> dict[str, Any]:
        return {
            "rope_type": "llama3",
            "factor": self.scale_for(lengths),
            "low_freq_factor": self.beta_slow,
            "high_freq_factor": self.beta_fast,
            "original_max_position_embeddings": lengths.trained,
        }


_LLAMA31_8B = RopeGeometry(128, 128, 32, 8, 5e5, 8192)

METHOD = Llama3
SOURCE = Source(
    paper="arXiv:2407.21783",
    place="section 3.4.2, long-context pre-training; the scaling is that of the reference",
    reference="github.com/meta-llama/llama-models@b25b488f5faa9efcdfaf4ed3bdee1f2827b62788",
    differs="the trained context and the scale come from the study; the reference fixes them to"
    " 8192 tokens and 8",
)
EVIDENCE = (
    frequencies(
        (
            1.0,
            3.21144599e-3,
            2.16657076e-3,
            8.56751413e-4,
            1.78507813e-4,
            9.55621235e-5,
            3.06892599e-7,
        ),
        origin=f"{EXACT}; Llama-3.1-8B: pairs 29 to 34 of 64 are partly divided; transformers 5.23"
        " 'llama3' agrees to 3.3e-7",
        pairs=(0, 28, 29, 31, 34, 35, 63),
        geometry=_LLAMA31_8B,
        target=65536,
    ),
    frequencies(
        (
            1.0,
            6.49381632e-3,
            5.07542766e-3,
            1.37432478e-3,
            1.94231711e-4,
            1.66690179e-4,
            1.44347748e-5,
        ),
        origin=EXACT,
        pairs=(0, 35, 36, 40, 45, 46, 63),
    ),
    frequencies(
        (1.0, 7.68591636e-3, 2.28022221e-4, 1.11142463e-5),
        origin=EXACT,
        pairs=(0, 8, 10, 15),
        geometry=PHI2,
    ),
    value("attention_factor", 1.0, "the method has no temperature"),
)
VERSION = 1
