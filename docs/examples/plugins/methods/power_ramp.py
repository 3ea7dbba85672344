"""Interpolation whose divisors grow along a power curve, from 1 to target / trained context.

Design: the fastest pairs keep their frequencies (`kept`). The divisor of the pair at the fraction x
of the others is (target / trained) ** (x ** exponent). With exponent 1 and no kept pair, this is
NTK-aware scaling. It is an example, no published method.
Source: own.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import frequencies, value
from lce_core.methods import Family, Method
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class PowerRamp(Method):
    """Interpolation along a power curve over the frequency pairs."""

    family: ClassVar[Family] = "interpolation"

    exponent: float = Field(gt=0)
    """Exponent of the curve; above 1 it spares the fast pairs, below 1 the slow ones."""
    kept: int = Field(default=0, ge=0)
    """Number of fastest pairs that keep their frequencies."""
    attention_factor: float = Field(default=1.0, gt=0)
    """Multiplies queries and keys."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raise SpecError unless at least two pairs are left for the curve."""
        most = geometry.num_pairs - 2
        if self.kept > most:
            raise SpecError(
                f"{self.plugin_name}.kept",
                self.kept,
                f"at most {most}, because two of the base model's {geometry.num_pairs} frequency"
                " pairs must follow the curve",
                "write a smaller number",
            )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Return inverse frequencies (pairs,) in radians per token, and the attention factor."""
        if lengths.target <= lengths.trained:
            return RopeTable(geometry.inv_freq())
        place = np.arange(geometry.num_pairs) - self.kept
        fraction = np.clip(place / (geometry.num_pairs - 1 - self.kept), 0, 1)
        divisors = (lengths.target / lengths.trained) ** (fraction**self.exponent)
        return RopeTable(geometry.inv_freq() / divisors, self.attention_factor)


METHOD = PowerRamp
SOURCE = Source(paper="own", place="docstring of the file", reference="own")
EVIDENCE = (
    # Llama-2-7B, from 4096 to 32768 tokens: 10000 ** (-pair / 64) / 8 ** ((pair / 63) ** exponent).
    frequencies(
        (1.0, 0.86551075, 0.087448187, 0.00697972, 0.0058479444, 0.00029905928, 1.4434775e-5),
        origin="the formula in 40 digits (mpmath), exponent 2",
        exponent=2.0,
    ),
    frequencies(
        (1.0, 0.86596432, 0.1, 0.0059467515, 0.004926802, 0.00024273378, 1.4434775e-5),
        origin="the same with the first 16 pairs kept: 8 ** ((pair - 16) / 47), exponent 1",
        exponent=1.0,
        kept=16,
    ),
    value("attention_factor", 1.1, "as given", exponent=1.0, attention_factor=1.1),
)
# For the models of the contract tests, which have four pairs.
EXAMPLES: Examples = (
    {"exponent": 1.5},
    {"exponent": 0.5, "attention_factor": 1.2},
    {"exponent": 0.5, "kept": 1},
)
VERSION = 1
