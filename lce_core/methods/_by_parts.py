"""Base classes of NTK-by-parts and YaRN, which keep fast frequencies and divide slow frequencies.

A pair is two elements of a head that RoPE rotates together. Frequencies between two limits are
divided partly, along a ramp. The ramp of the paper (`ByParts`) is linear in the number of rotations
that a pair makes within the trained context. The ramp of the authors' code (`WithTemperature`) is
linear in the pair's index, between two rounded limits.

Source: Peng et al. 2023, arXiv:2309.00071, sections 3.2 (ramp) and 3.3 (temperature).
"""

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from lce_core.errors import SpecError
from lce_core.methods import Family, Method, ScaledMethod
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable
from lce_core.rope.stated import index_ramp, temperature


class ByParts(Method):
    """Divides the frequencies of slow pairs, keeps those of fast pairs, and mixes both between."""

    family: ClassVar[Family] = "interpolation"

    beta_fast: float = Field(default=32.0, gt=0)
    """A pair that makes at least this many rotations within the trained context stays unchanged."""
    beta_slow: float = Field(default=1.0, gt=0)
    """The frequency of a pair that makes at most this many rotations within the trained context is
    divided by the full scale."""

    @model_validator(mode="after")
    def _limits_in_order(self) -> Self:
        if self.beta_fast <= self.beta_slow:
            raise SpecError(
                "beta_fast",
                f"beta_fast {self.beta_fast}, beta_slow {self.beta_slow}",
                "beta_fast larger than beta_slow",
                "raise beta_fast or lower beta_slow",
            )
        return self

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        turns = geometry.trained_context * geometry.inv_freq()[0] / (2 * math.pi)
        if turns <= self.beta_slow:
            raise SpecError(
                f"{self.plugin_name}.beta_slow",
                self.beta_slow,
                f"less than the {turns:.2f} turns"
                " that the fastest pair makes within the trained context of"
                f" {geometry.trained_context} tokens",
                "lower beta_slow",
            )

    def interpolated(self, geometry: RopeGeometry) -> Frequencies:
        """Return for each pair the weight of its divided frequency (pairs,), from 0 to 1.

        The weight is linear in the pair's rotations within the trained context.
        """
        rotations = geometry.trained_context * geometry.inv_freq() / (2 * math.pi)
        kept = (rotations - self.beta_slow) / (self.beta_fast - self.beta_slow)
        return np.asarray(1 - np.clip(kept, 0, 1))

    def by_parts(self, geometry: RopeGeometry, scale: float) -> Frequencies:
        """Return inverse frequencies (pairs,): the mean of the divided and the kept frequency."""
        share, kept = self.interpolated(geometry), geometry.inv_freq()
        return share * kept / scale + (1 - share) * kept


class ScaledByParts(ScaledMethod, ByParts):
    """Methods by parts with one scale for all request lengths."""

    scale: float | None = None
    """Divisor of fully interpolated frequencies; None means target / trained context."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(self.by_parts(geometry, self.scale_for(lengths)))


class WithTemperature(ByParts):
    """NTK-by-parts with a choice of two ramps, and with an attention temperature."""

    ramp: Literal["code", "paper"] = "code"
    """"code": the ramp is linear in the pair's index, as in the authors' code. "paper": the ramp is
    linear in the pair's rotations within the trained context."""
    truncate: bool = True
    """True rounds both ends of the "code" ramp outwards to whole indices of pairs."""
    attention_factor: float | None = Field(default=None, gt=0)
    """Factor that multiplies both queries and keys; None means 0.1 ln(scale) + 1. With 1 and the
    "paper" ramp, the method is NTK-by-parts."""

    @model_validator(mode="after")
    def _truncation_has_effect(self) -> Self:
        if self.ramp == "paper" and not self.truncate:
            raise SpecError(
                "truncate",
                "truncate: false with ramp: paper",
                "truncate: false only together with ramp: code",
                "remove truncate, or write ramp: code",
            )
        return self

    def interpolated(self, geometry: RopeGeometry) -> Frequencies:
        if self.ramp == "paper":
            return super().interpolated(geometry)
        return index_ramp(geometry, self.beta_fast, self.beta_slow, truncate=self.truncate)

    def table(self, geometry: RopeGeometry, scale: float) -> RopeTable:
        factor = self.attention_factor
        return RopeTable(
            self.by_parts(geometry, scale),
            temperature(scale) if factor is None else factor,
        )

    def stated(self, scale: float, trained: int) -> dict[str, Any] | None:
        """Return `rope_parameters` for transformers; None for the "paper" ramp, which it lacks."""
        if self.ramp == "paper":
            return None
        parameters: dict[str, Any] = {
            "rope_type": "yarn",
            "factor": scale,
            "original_max_position_embeddings": trained,
            "beta_fast": self.beta_fast,
            "beta_slow": self.beta_slow,
            "truncate": self.truncate,
        }
        if self.attention_factor is not None:
            parameters["attention_factor"] = self.attention_factor
            # vLLM uses another name, and multiplies the value by its own temperature.
            parameters["attn_factor"] = self.attention_factor / temperature(scale)
        return parameters
