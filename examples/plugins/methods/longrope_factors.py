"""LongRoPE with factors from the study: each frequency is divided by its own factor.

LongRoPE searches for the factors; here the study lists them. They apply at every request length if
the target context exceeds the trained one, otherwise not at all.
Source: Ding et al. 2024, arXiv:2402.13753, section 3; attention factor: transformers' longrope.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import frequencies, value
from lce_core.methods import Family, Method
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class LongropeFactors(Method):
    """Interpolation with one factor for each frequency pair."""

    family: ClassVar[Family] = "interpolation"

    factors: tuple[float, ...]
    """One divisor (at least 1) for each frequency pair, fastest pair first."""
    attention_factor: float | None = Field(default=None, gt=0)
    """Multiplies queries and keys; None means sqrt(1 + ln(target / trained) / ln(trained))."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raise SpecError unless every pair has a factor of at least 1."""
        where = f"{self.plugin_name}.factors"
        if len(self.factors) != geometry.num_pairs:
            raise SpecError(
                where,
                f"{len(self.factors)} factors",
                f"one for each of the base model's {geometry.num_pairs} frequency pairs",
                f"list {geometry.num_pairs} factors, the fastest pair's first",
            )
        for index, factor in enumerate(self.factors):
            if factor < 1:
                raise SpecError(
                    f"{where}[{index}]", factor, "a factor of at least 1", "write 1 to keep a pair"
                )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Return inverse frequencies (pairs,) in radians per token, and the attention factor."""
        if lengths.target <= lengths.trained:
            return RopeTable(geometry.inv_freq())
        scale = lengths.target / lengths.trained
        formula = math.sqrt(1 + math.log(scale) / math.log(lengths.trained))
        factor = formula if self.attention_factor is None else self.attention_factor
        return RopeTable(geometry.inv_freq() / np.array(self.factors), factor)


METHOD = LongropeFactors
SOURCE = Source(
    paper="arXiv:2402.13753",
    place="section 3, rescale factors of the RoPE dimensions",
    reference="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/"
    "modeling_rope_utils.py",
    differs="the study lists the factors instead of searching for them; the first tokens are"
    " rescaled like all others; one list applies at every length, while the paper uses another one"
    " up to the trained context; with partial rotary embedding (Phi) the attention factor"
    " multiplies whole heads, while transformers scales only the rotated elements",
)
EVIDENCE = (
    # Llama-2-7B, from 4096 to 32768 tokens, factors 1 + pair / 9.
    frequencies(
        (1.0, 7.7936789e-1, 3.6e-2, 2.5982595e-3, 2.195122e-3, 1.5789474e-4, 1.4434775e-5),
        origin="10000 ** (-pair / 64) / factor, by hand; transformers 5.23 'longrope', in float32,"
        " agrees to 1.3e-7",
        factors=tuple(1 + pair / 9 for pair in range(64)),
    ),
    value(
        "attention_factor",
        1.118033988749895,
        "sqrt(1 + ln 8 / ln 4096) = sqrt(1.25), by hand; and transformers 5.23 'longrope'",
        factors=(1.0,) * 64,
    ),
    value("attention_factor", 1.0, "as given", factors=(8.0,) * 64, attention_factor=1.0),
)
# For the models of the contract tests, which have four pairs.
EXAMPLES: Examples = (
    {"factors": [1.0, 1.5, 3.0, 4.0]},
    {"factors": [2.0, 2.0, 4.0, 4.0], "attention_factor": 1.5},
)
VERSION = 1
