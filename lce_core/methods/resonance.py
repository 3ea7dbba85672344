"""Resonance RoPE: round every wavelength to whole tokens, so that angles repeat exactly.

Design: a pair that turns at least once within the trained context then has the same angles at
larger positions as at trained ones. The wavelengths of another method are rounded, YaRN's by
default; its attention factor is kept. With a scale of 1, another method than "none" leaves the base
model unextended, and nothing is rounded.
"""

import math
from typing import Literal, Self

import numpy as np
from pydantic import model_validator

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, PHI2, frequencies, value
from lce_core.methods import Method
from lce_core.methods._by_parts import ScaledByParts, WithTemperature
from lce_core.methods._ntk import ntk_frequencies
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class Resonance(ScaledByParts, WithTemperature):
    """YaRN, PI, NTK-aware or no scaling, with wavelengths of whole tokens."""

    over: Literal["yarn", "pi", "ntk_aware", "none"] = "yarn"
    """Method whose wavelengths are rounded; "none" rounds those of the base model."""

    @model_validator(mode="after")
    def _parameters_have_effect(self) -> Self:
        own = {*WithTemperature.model_fields} - {*Method.model_fields}
        unused = own | {"scale"} if self.over == "none" else own
        given = [*self.model_dump(include=unused, exclude_defaults=True)]
        if given and self.over != "yarn":
            raise SpecError(
                given[0],
                f"{', '.join(given)} with over: {self.over}",
                "only parameters that change the frequencies or attention there",
                f"remove {' and '.join(given)}, or write over: yarn",
            )
        return self

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        scale = self.scale_for(lengths)
        table = self._unrounded(geometry, scale)
        if scale == 1 and self.over != "none":
            return table
        # Halves are rounded to the even number, as in the reference.
        wavelengths = np.round(math.tau / table.inv_freq)
        return RopeTable(math.tau / wavelengths, table.attention_factor)

    def _unrounded(self, geometry: RopeGeometry, scale: float) -> RopeTable:
        match self.over:
            case "pi":
                return RopeTable(geometry.inv_freq() / scale)
            case "ntk_aware":
                return RopeTable(ntk_frequencies(geometry, scale))
            case "none":
                return RopeTable(geometry.inv_freq())
        return self.table(geometry, scale)


METHOD = Resonance
SOURCE = Source(
    paper="arXiv:2403.00071",
    place="section 4.2, algorithm 1; Resonance YaRN of section 5",
    reference="github.com/sheryc/resonance_rope@4a7f5a703b2e96756939db51916937ab7c5ab3a9",
    differs="YaRN's limits are 32 and 1 rotations, as in the authors' fine-tuning of Llama; their"
    " synthetic tasks use 2 and 1. Angles are computed in float64 and need no repetition of the"
    " first turn",
)
EVIDENCE = (
    frequencies(
        (1.04719755, 0.483321947, 9.97331001e-2, 7.27220522e-3, 5.96127638e-3, 1.44347796e-5),
        origin=f"{EXACT}; wavelengths of 6, 13, 63, 864, 1,054 and 435,281 tokens; the reference's"
        " class, in float32, has the same 64 wavelengths",
        pairs=(0, 5, 16, 31, 32, 63),
    ),
    frequencies(
        (0.125663706, 1.24914221e-2, 1.44341496e-3),
        origin=f"{EXACT}; PI: wavelengths of 50, 503 and 4,353 tokens",
        pairs=(0, 16, 31),
        over="pi",
    ),
    frequencies(
        (0.897597901, 5.8721358e-2, 4.15005635e-3),
        origin=f"{EXACT}; NTK-aware: wavelengths of 7, 107 and 1,514 tokens",
        pairs=(1, 16, 31),
        over="ntk_aware",
    ),
    frequencies(
        (0.897597901, 9.97331001e-2, 1.1549973e-2),
        origin=f"{EXACT}; no scaling: wavelengths of 7, 63 and 544 tokens",
        pairs=(1, 16, 31),
        over="none",
    ),
    frequencies(
        (1.04719755, 0.571198664, 4.64389158e-3, 1.11142495e-5),
        origin=f"{EXACT}; wavelengths of 6, 11, 1,353 and 565,327 tokens",
        pairs=(0, 1, 8, 15),
        geometry=PHI2,
    ),
    value("attention_factor", 1.2079441541679836, "transformers 5.23 'yarn', factor 8"),
    value("attention_factor", 1.0, "PI has no temperature", over="pi"),
)
VERSION = 1
