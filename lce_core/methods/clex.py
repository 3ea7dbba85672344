"""CLEX: frequencies that solve a learned differential equation in the scale of the context.

Design: the logarithm of each frequency obeys an ordinary differential equation in the scale t. The
right-hand side is the NTK-aware change of base for scale 2 t - 1 plus a small network shared by all
layers, which is zero before training. Training draws a scale for every row, spreads the row's
positions over the context of that scale, and differentiates through the integration. A request uses
the scale of its length. Without fine-tuning, CLEX is the NTK-aware method at scale 2 t - 1.

A change of a frequency changes the angle at a position by the product of both. At large positions
the network's gradient is therefore orders of magnitude larger than the model's. Training clips both
by their common norm, which is then almost that of the network's gradient.
"""

import math
from typing import Literal

from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, PHI2, frequencies, value
from lce_core.methods import Method
from lce_core.methods._ntk import ntk_frequencies
from lce_core.registry import Source
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable

_MARGIN = 4


class Clex(Method):
    """Frequencies as a learned, continuous function of the context's scale."""

    family = "dynamic"
    rotary = "lce_core.extension.continuous_rotary:ContinuousRotary"

    max_scale: int | None = Field(default=None, ge=1)
    """Largest scale t (context length divided by the trained context) in training and at inference;
    None means four times the scale of the target context."""
    expansion: int = Field(default=1, ge=1)
    """Hidden units of the network, as a multiple of the rotary dimension."""
    activation: Literal["silu", "tanh"] = "silu"
    """Nonlinearity of the network."""
    step: float = Field(default=0.1, gt=0, le=1)
    """Step of the integration, in units of the scale; 1 must be a multiple of the step."""
    log_scale: bool = False
    """True multiplies the attention logits of requests longer than the trained context by
    ln(request length) / ln(trained context)."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        factor = 1.0
        if self.log_scale and lengths.request > lengths.trained:
            factor = math.sqrt(math.log(lengths.request) / math.log(lengths.trained))
        return RopeTable(self.untrained(geometry, self.scale_at(lengths)), factor)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        needed = math.ceil(lengths.target / lengths.trained)
        if self.largest_scale(lengths) < needed:
            raise SpecError(
                "clex.max_scale",
                self.max_scale,
                f"at least {needed}, the target context divided by the trained context of"
                f" {lengths.trained} tokens",
                f"write {_MARGIN * needed}, or remove the key",
            )
        if abs(self.steps_per_scale * self.step - 1) > 1e-9:
            raise SpecError(
                "clex.step",
                self.step,
                "a step that divides 1, so that the integration reaches every whole scale",
                f"write {1 / self.steps_per_scale}",
            )
        self.untrained(geometry, 1)

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return lengths.request > lengths.trained

    @property
    def steps_per_scale(self) -> int:
        """Number of integration steps in which the scale grows by 1."""
        return round(1 / self.step)

    def largest_scale(self, lengths: ContextLengths) -> int:
        """Return `max_scale` or its default, 4 * ceil(target context / trained context)."""
        target = math.ceil(lengths.target / lengths.trained)
        return _MARGIN * target if self.max_scale is None else self.max_scale

    def scale_at(self, lengths: ContextLengths) -> int:
        return min(math.ceil(lengths.request / lengths.trained), self.largest_scale(lengths))

    def untrained(self, geometry: RopeGeometry, scale: float) -> Frequencies:
        """Return inverse frequencies (pairs,) before training."""
        return ntk_frequencies(geometry, 2 * scale - 1)


METHOD = Clex
SOURCE = Source(
    paper="arXiv:2310.16450",
    place="section 3; scales up to 32 and SiLU at a target of 8 contexts from LCEG's configuration",
    reference="https://github.com/DAMO-NLP-SG/CLEX/tree/023709d",
    differs="only the network's summand is integrated, in float64 (the NTK summand is exact), with"
    " the same 3/8 rule and step 0.1 instead of 0.01. With step 0.1 the reference's own integral"
    " changes by 1.4e-6 in the logarithm. Each row has its own scale and positions; the reference"
    " draws them per micro-batch. The last position of a row is (L t - 1) / k, larger than all"
    " others; the reference's, L t // k - 1, can be smaller if rows are longer than the context."
    " k = L / C is not rounded down. The base model's theta replaces 10000. Each request has one"
    " table. log_scale applies in training and at inference, and its factor is never below 1",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.659643e-1, 1.0e-1, 1.154782e-2, 1.0e-2, 1.0e-3, 1.154782e-4),
        origin=f"{EXACT}; the base model within its context",
        request=4096,
    ),
    frequencies(
        (1.0, 8.295296e-1, 5.027015e-2, 3.046411e-3, 2.527088e-3, 1.270371e-4, 7.698547e-6),
        origin=f"{EXACT}; before training, t = 8 at 32768 tokens: NTK-aware with scale 15",
    ),
    frequencies(
        (1.0, 8.200259e-1, 4.180628e-2, 2.131353e-3, 1.747765e-3, 7.306753e-5, 3.725103e-6),
        origin=f"{EXACT}; before training, t = 16 at 61441 tokens: NTK-aware with scale 31",
        request=61441,
    ),
    frequencies(
        (1.0, 8.295296e-1, 5.027015e-2, 3.046411e-3, 2.527088e-3, 1.270371e-4, 7.698547e-6),
        origin=f"{EXACT}; t stays at max_scale for longer requests",
        request=1048576,
        max_scale=8,
    ),
    frequencies(
        (5.73638499e-6,),
        origin="transformers 5.23 'dynamic', factor 2, Phi-2 at 32768 tokens; t = 16",
        pairs=(15,),
        geometry=PHI2,
    ),
    value(
        "attention_factor",
        1.118033988749895,
        "logits times ln 32768 / ln 4096 = 15 / 12",
        log_scale=True,
    ),
    value(
        "attention_factor", 1.0, "the base model within its context", request=100, log_scale=True
    ),
)
VERSION = 2
