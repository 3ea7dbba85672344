"""NTK-by-parts, YaRN and Llama 3's scaling: keep fast frequencies and divide slow ones.

A pair is two elements of a head that RoPE rotates together. Frequencies between two limits are
divided partly, along a ramp. The ramp of the paper (`ByParts`) is linear in the number of rotations
that a pair makes within the trained context. The ramp of the authors' code (`WithTemperature`) is
linear in the pair's index, between two rounded limits.

Source: Peng et al. 2023, arXiv:2309.00071, sections 3.2 (ramp) and 3.3 (temperature).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, PHI2, Evidence, frequencies, value
from lce_core.methods import Family, Method, ScaledMethod
from lce_core.methods._ntk import Dynamic
from lce_core.registry import Source
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


class NtkByParts(ScaledMethod, ByParts):
    """NTK-by-parts: keep fast frequencies, interpolate slow ones, leave attention unchanged.

    Design: YaRN without its temperature, with the paper's ramp, which is linear in the rotations of
    a pair within the trained context. The older "PartNTK" of the authors' code is a different
    function.
    """

    plugin_name = "ntk_by_parts"
    plugin_version = 1
    source = Source(
        paper="arXiv:2309.00071",
        place="section 3.2, equations 10-13",
        reference="own",
        differs="lce computes the paper's equations; the authors' code mixes three scalings under"
        " this name",
    )
    evidence: ClassVar[tuple[Evidence, ...]] = (
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 3.571259e-3, 2.807778e-3, 1.25e-4, 1.443477e-5), origin=EXACT
        ),
        value("attention_factor", 1.0, "the method has no temperature"),
    )

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
        return super().interpolated(geometry) if self.ramp == "paper" else self._by_index(geometry)

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

    def _by_index(self, geometry: RopeGeometry) -> Frequencies:
        return index_ramp(geometry, self.beta_fast, self.beta_slow, truncate=self.truncate)


class Yarn(NtkByParts, WithTemperature):
    """YaRN: keep fast frequencies, interpolate slow ones, sharpen attention.

    Design: a ramp determines the degree of interpolation of each pair. The paper's ramp is linear
    in the rotations of a pair within the trained context. The ramp of the authors' code,
    transformers and the published models is linear in the pair's index between two rounded limits.
    The two ramps differ by up to 57 % for single pairs, so both are available. The code's ramp is
    the default.
    """

    plugin_name = "yarn"
    plugin_version = 1
    source = Source(
        paper="arXiv:2309.00071",
        place="section 3.2, equations 10-13; section 3.3, equations 14, 15",
        reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
        differs="under partial rotary (Phi) the temperature acts on whole heads, as in the paper;"
        " transformers scales only the rotated elements",
    )
    evidence = (
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 7.272906e-3, 5.961538e-3, 1.25e-4, 1.443477e-5),
            origin=f"{EXACT}; transformers 5.23 'yarn' agrees to 1.7e-7",
        ),
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 7.328788e-3, 5.983133e-3, 1.25e-4, 1.443477e-5),
            origin=f"{EXACT}; transformers 5.23 'yarn' with truncate false agrees to 4.3e-7",
            truncate=False,
        ),
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 3.571259e-3, 2.807778e-3, 1.25e-4, 1.443477e-5),
            origin=EXACT,
            ramp="paper",
        ),
        value("attention_factor", 1.2079441541679836, "transformers 5.23 'yarn', factor 8"),
        frequencies(
            (1.0, 0.56234133, 0.0046428568, 1.1114246e-5),
            origin="transformers 5.23 'yarn', factor 16, Phi-2",
            pairs=(0, 1, 8, 15),
            geometry=PHI2,
        ),
        value(
            "attention_factor",
            1.2772588722239782,
            "transformers 5.23 'yarn', factor 16",
            geometry=PHI2,
        ),
    )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return self.table(geometry, self.scale_for(lengths))

    def stock_rope(self, lengths: ContextLengths) -> dict[str, Any] | None:
        return self.stated(self.scale_for(lengths), lengths.trained)


class DynamicYarn(Dynamic, WithTemperature):
    """Dynamic YaRN: the scale of frequencies and temperature = request length / trained context.

    Design: YaRN with scale max(1, L / C), where C is the trained context. L counts prompt and new
    tokens of the request, so that cached keys and new queries use one table. With attention_factor
    1 and ramp "paper" this is the dynamic NTK-by-parts of YaRN's table 5.
    """

    plugin_name = "dynamic_yarn"
    plugin_version = 1
    source = Source(
        paper="arXiv:2309.00071",
        place="section 3.4 and table 5, row YaRN, dynamic",
        reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
        differs="one table per request; the reference changes the table during generation. For"
        " fine-tuned models the reference's two classes divide the length by different contexts;"
        " lce divides by the base model's trained context",
    )
    evidence = (
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
            origin=f"{EXACT}; the base model within its context",
            request=4096,
        ),
        value("attention_factor", 1.0, "the base model within its context", request=4096),
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 7.272906e-3, 5.961538e-3, 1.25e-4, 1.443477e-5),
            origin=f"{EXACT}; static YaRN with scale 8 at 32768 tokens",
        ),
        value("attention_factor", 1.2079441541679836, "transformers 5.23 'yarn', factor 8"),
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 3.571259e-3, 2.807778e-3, 1.25e-4, 1.443477e-5),
            origin=f"{EXACT}; NTK-by-parts with scale 8 at 32768 tokens",
            ramp="paper",
            attention_factor=1.0,
        ),
    )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return self.table(geometry, self.scale_at(lengths))

    def stock_rope(self, lengths: ContextLengths) -> dict[str, Any] | None:
        return self.stated(self.scale_at(lengths), lengths.trained)


_LLAMA31_8B = RopeGeometry(128, 128, 32, 8, 5e5, 8192)


class Llama3(NtkByParts):
    """Llama 3.1's scaling: keep fast frequencies, divide slow ones, leave attention unchanged.

    Design: NTK-by-parts with other limits. A pair whose wavelength is at most the trained context /
    4 keeps its frequency; a pair whose wavelength is at least the trained context is divided by the
    scale. Between them the share of the kept frequency is linear in the pair's rotations.
    """

    plugin_name = "llama3"
    plugin_version = 1
    source = Source(
        paper="arXiv:2407.21783",
        place="section 3.4.2, long-context pre-training; the scaling is that of the reference",
        reference="github.com/meta-llama/llama-models@b25b488f5faa9efcdfaf4ed3bdee1f2827b62788",
        differs="the trained context and the scale come from the study; the reference fixes them to"
        " 8192 tokens and 8",
    )
    evidence = (
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
            origin=f"{EXACT}; Llama-3.1-8B: pairs 29 to 34 of 64 are partly divided; transformers"
            " 5.23 'llama3' agrees to 3.3e-7",
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
