"""LongRoPE with given factors: every frequency divided by a factor of its own.

The factors are given, not searched for. They hold at every length once the study extends the
context; where it does not, the model is the base model.
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
    """Interpolation by one rescale factor for each frequency pair."""

    family: ClassVar[Family] = "interpolation"

    factors: tuple[float, ...]
    """Divisors of the frequencies, fastest pair first: one for each pair, 1 or more."""
    attention_factor: float | None = Field(default=None, gt=0)
    """Factor of queries and of keys; None: sqrt(1 + ln(target / trained) / ln(trained))."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raise SpecError unless every pair has a factor of at least 1."""
        where = f"{self.plugin_name}.factors"
        if len(self.factors) != geometry.num_pairs:
            raise SpecError(
                where,
                f"{len(self.factors)} factors",
                f"one for each of the base model's {geometry.num_pairs} frequency pairs",
                f"give {geometry.num_pairs} factors, that of the fastest pair first",
            )
        for index, factor in enumerate(self.factors):
            if factor < 1:
                raise SpecError(
                    f"{where}[{index}]", factor, "a factor of at least 1", "give 1 to keep a pair"
                )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Inverse frequencies (pairs,) in radians per token, and the attention factor."""
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
    differs="factors are given, not searched for; the first tokens are rescaled like all others;"
    " one list holds at every length, where the paper takes another up to the trained context;"
    " under partial rotary (Phi) the attention factor acts on whole heads, where transformers"
    " scales only the rotated elements",
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
# For the models of the contract tests, which have four pairs; for others see study.yaml.
EXAMPLES: Examples = (
    {"factors": [1.0, 1.5, 3.0, 4.0]},
    {"factors": [2.0, 2.0, 4.0, 4.0], "attention_factor": 1.5},
)
VERSION = 1
