"""The RoPE base of all NTK-aware methods, and methods whose scale follows the request's length.

Source: Peng et al. 2023, arXiv:2309.00071, definition 3; dynamic form: transformers' "dynamic".
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, PHI2, Evidence, frequencies
from lce_core.methods import Family, Method, checked_scale
from lce_core.registry import Source
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable


def ntk_frequencies(geometry: RopeGeometry, scale: float) -> Frequencies:
    """Return inverse frequencies (pairs,): the slowest divided by `scale`, the fastest kept.

    The base becomes theta * scale ** (d / (d - 2)) for rotary dimension d.
    """
    dim = geometry.rotary_dim
    if dim == 2:
        raise SpecError(
            "NTK-aware scaling",
            "a model with a single rotated pair (rotary_dim 2)",
            "at least two pairs, a fastest and a slowest",
            "use the method pi",
        )
    return geometry.inv_freq(geometry.theta * scale ** (dim / (dim - 2)))


def dynamic_scale(factor: float, length: int, trained: int) -> float:
    """Return factor * length / trained - (factor - 1), at least 1; lengths are in tokens."""
    return factor * max(length, trained) / trained - (factor - 1)


class Dynamic(Method):
    """Base class of methods with a scale that grows with the request's length."""

    family: ClassVar[Family] = "dynamic"

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return lengths.request > self.constant_up_to(lengths)

    def growth(self, lengths: ContextLengths) -> float:
        """Return by how much the scale grows when a request is one trained context longer."""
        return 1.0

    def constant_up_to(self, lengths: ContextLengths) -> int:
        """Return the length in tokens up to which all requests have the same, smallest scale."""
        return lengths.trained

    def scale_at(self, lengths: ContextLengths) -> float:
        length = max(self.constant_up_to(lengths), lengths.request)
        return dynamic_scale(self.growth(lengths), length, lengths.trained)


class DynamicPositionInterpolation(Dynamic):
    """Dynamic position interpolation (YaRN's paper): scale = request length / trained context.

    Design: every frequency is divided by max(1, L / C), where C is the trained context. L counts
    prompt and new tokens of the request, so that cached keys and new queries use one table.
    """

    plugin_name = "dynamic_pi"
    plugin_version = 1
    source = Source(
        paper="arXiv:2309.00071",
        place="section 3.4 and table 5, row PI, dynamic",
        reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
        differs="one table per request; the reference changes the table during generation",
    )
    evidence = (
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
            origin=f"{EXACT}; the base model within its context",
            request=4096,
        ),
        frequencies(
            (1.25e-1, 1.082455e-1, 1.25e-2, 1.443477e-3, 1.25e-3, 1.25e-4, 1.443477e-5),
            origin=f"{EXACT}; static PI with scale 8 at 32768 tokens",
        ),
    )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq() / self.scale_at(lengths))


class DynamicNtkAware(Dynamic):
    """Dynamic NTK-aware interpolation (YaRN's paper): scale = request length / trained context.

    Design: the method ntk_aware with scale max(1, L / C), where L counts prompt and new tokens of
    the request and C is the trained context. The method ntk_frozen has a scale that grows twice as
    fast.
    """

    plugin_name = "dynamic_ntk_aware"
    plugin_version = 1
    source = Source(
        paper="arXiv:2309.00071",
        place="section 3.4 and table 5, row NTK-aware, dynamic",
        reference="github.com/jquesnelle/yarn@995db5b575e75230b3384d658f8b944c9662f775",
        differs="one base per request; the reference changes the base during generation",
    )
    evidence: ClassVar[tuple[Evidence, ...]] = (
        frequencies(
            (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
            origin=f"{EXACT}; the base model within its context",
            request=4096,
        ),
        frequencies(
            (1.0, 8.378480e-1, 5.897172e-2, 4.150710e-3, 3.477664e-3, 2.050838e-4, 1.443477e-5),
            origin=f"{EXACT}; static NTK-aware with scale 8 at 32768 tokens",
        ),
    )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(ntk_frequencies(geometry, self.scale_at(lengths)))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.rope_table(geometry, lengths)


class NtkFrozen(DynamicNtkAware):
    """Dynamic NTK without fine-tuning (NTK-Frozen): the base grows with the request.

    Design: scale t = s L / C - (s - 1) beyond the trained context C, 1 within it. L counts prompt
    and new tokens of the request, so that cached keys and new queries use one base.
    """

    plugin_name = "ntk_frozen"
    plugin_version = 1
    source = Source(
        paper="arXiv:2409.12181",
        place="appendix 9.2 and tables 8, 9 (factor 2 in the code; the text's C'/2C would be 0.5)",
        reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
        differs="one base per request; the reference keeps the base of the longest request so far"
        " and reads cached keys that were rotated by earlier bases",
    )
    evidence = tuple(
        frequencies(expected, origin=EXACT, request=request)
        for request, expected in (
            (4096, (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4)),
            (
                8192,
                (1.0, 8.509943e-1, 7.565303e-2, 6.725523e-3, 5.723382e-3, 4.329912e-4, 3.849273e-5),
            ),
            (
                16384,
                (1.0, 8.396257e-1, 6.100591e-2, 4.432596e-3, 3.721721e-3, 2.270470e-4, 1.649689e-5),
            ),
            (
                32768,
                (1.0, 8.295296e-1, 5.027015e-2, 3.046411e-3, 2.527088e-3, 1.270371e-4, 7.698547e-6),
            ),
            (
                65536,
                (1.0, 8.200259e-1, 4.180628e-2, 2.131353e-3, 1.747765e-3, 7.306753e-5, 3.725103e-6),
            ),
        )
    )

    factor: float = Field(default=2.0, ge=1)
    """Increase s of the scale when a request is one trained context longer."""

    def growth(self, lengths: ContextLengths) -> float:
        return self.factor


class Ntk32k(DynamicNtkAware):
    """Dynamic NTK with fine-tuning (NTK-32K of LCEG): constant up to the target, growing beyond.

    Design: scale t = s max(C', L) / C - (s - 1) with s = C' / (2 C), for the trained context C, the
    target context C' and a request of L tokens. Training rows have C' tokens, so training uses one
    base. The name is LCEG's for Llama-2 at 32768 tokens; the formula uses the study's target.

    Source: Lu et al. 2024, arXiv:2409.12181, appendix 9.2, after Fu et al. 2024 (arXiv:2402.10171).
    """

    plugin_name = "ntk_32k"
    plugin_version = 1
    source = Source(
        paper="arXiv:2409.12181",
        place="appendix 9.2 and tables 7, 8",
        reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
        differs="s is not rounded up to an integer (no difference if the target is a multiple of"
        " twice the trained context), and each request has one base",
    )
    evidence = (
        frequencies(
            (1.0, 8.208945e-1, 4.252040e-2, 2.202456e-3, 1.807984e-3, 7.687622e-5, 3.982007e-6),
            origin=f"{EXACT}; scale 29 of LCEG table 8",
        ),
        frequencies(
            (1.0, 8.208945e-1, 4.252040e-2, 2.202456e-3, 1.807984e-3, 7.687622e-5, 3.982007e-6),
            origin=f"{EXACT}; scale 29 at 4096 tokens too",
            request=4096,
        ),
        frequencies(
            (1.0, 8.112626e-1, 3.520326e-2, 1.527581e-3, 1.239270e-3, 4.362633e-5, 1.893085e-6),
            origin=f"{EXACT}; scale 61 of LCEG table 8",
            request=65536,
        ),
        frequencies(
            (1.0, 4.08458233e-1),
            origin="transformers 5.23 'dynamic', factor 8, Phi-2 at 32768 tokens",
            pairs=(0, 1),
            geometry=PHI2,
        ),
    )

    factor: float | None = Field(default=None, gt=0)
    """Increase s of the scale when a request is one trained context longer; None means target
    context / (2 * trained context)."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        checked_scale(self, None, lengths)
        super().check(geometry, lengths)

    def growth(self, lengths: ContextLengths) -> float:
        return lengths.target / (2 * lengths.trained) if self.factor is None else self.factor

    def constant_up_to(self, lengths: ContextLengths) -> int:
        return lengths.target


class Ntk64k(Ntk32k):
    """Dynamic NTK with fine-tuning (NTK-64K of LCEG): ntk_32k for a target of 65536 tokens.

    Design: the formula of ntk_32k, which gives scale 121 for Llama-2 at 65536 tokens, like LCEG's
    code. LCEG's tables print 57, the formula's value at half the target. `scale_form` selects one
    of the two.

    Source: Lu et al. 2024, arXiv:2409.12181, appendix 9.2, after Fu et al. 2024 (arXiv:2402.10171).
    """

    plugin_name = "ntk_64k"
    plugin_version = 1
    source = Source(
        paper="arXiv:2409.12181",
        place="appendix 9.2 (formula) and tables 7, 8 (printed 57)",
        reference="github.com/Leooyii/LCEG@2ce672dc42b9b5d3e408e8117126c28caeaafcc0",
        differs="the default is the formula's scale, 121; tables 7 and 8 print 57. s is not rounded"
        " up to an integer, and each request has one base",
    )
    evidence = (
        frequencies(
            (1.0, 8.024905e-1, 2.958276e-2, 1.090529e-3, 8.751395e-4, 2.588904e-5, 9.543653e-7),
            origin=f"{EXACT}; scale 121 of LCEG's formula and code",
            target=65536,
        ),
        frequencies(
            (1.0, 8.121364e-1, 3.581488e-2, 1.579422e-3, 1.282706e-3, 4.593996e-5, 2.025933e-6),
            origin=f"{EXACT}; scale 57 of LCEG tables 7 and 8",
            target=65536,
            scale_form="printed",
        ),
        frequencies(
            (1.0, 8.121364e-1, 3.581488e-2, 1.579422e-3, 1.282706e-3, 4.593996e-5, 2.025933e-6),
            origin=f"{EXACT}; scale 57 at 4096 tokens too",
            target=65536,
            request=4096,
            scale_form="printed",
        ),
        frequencies(
            (1.0, 3.71743083e-1),
            origin="transformers 5.23 'dynamic', factor 16, Phi-2 at 65536 tokens",
            pairs=(0, 1),
            geometry=PHI2,
            target=65536,
        ),
    )

    scale_form: Literal["formula", "printed"] = "formula"
    """"formula" uses the scale of the formula (121 for Llama-2 at 65536 tokens); "printed" uses the
    formula's value at half the target, which LCEG's tables print (57)."""

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return self.scale_form == "formula" and super().length_dependent(geometry, lengths)

    def scale_at(self, lengths: ContextLengths) -> float:
        if self.scale_form == "formula":
            return super().scale_at(lengths)
        return dynamic_scale(self.growth(lengths), lengths.target // 2, lengths.trained)
