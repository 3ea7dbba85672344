"""Methods that rotate the pairs of lowest frequency less, or not at all.

Without rotation (frequency 0) a pair compares queries and keys regardless of their distance.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, PHI2, frequencies
from lce_core.methods import Base, Family, Method
from lce_core.registry import Source
from lce_core.rope import ContextLengths, Frequencies, RopeGeometry, RopeTable

_CLIPPED, _PAIRS = 20, 64
"""Pairs that CoPE clips, and pairs of a head in its model, Llama-3-8B."""


class Clipped(Method):
    """Multiplies each frequency by a weight (`weights`), for all request lengths."""

    family: ClassVar[Family] = "interpolation"

    base: Base | None = None
    """RoPE base of the weighted frequencies; None means the base model's own."""

    def weights(self, geometry: RopeGeometry) -> Frequencies:
        """Return for each pair the factor of its frequency (pairs,), from 0 to 1."""
        raise NotImplementedError

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(self.weights(geometry) * geometry.inv_freq(self.base))


class ClippedLast(Clipped):
    """Clips a given number of the lowest frequencies."""

    num_clipped: int | None = Field(default=None, ge=1)
    """Number of pairs of lowest frequency to clip; None means 5/16 of the pairs, the paper's 20
    of 64, rounded and at least 2."""

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        if self.count(geometry) > geometry.num_pairs:
            raise SpecError(
                f"{self.plugin_name}.num_clipped",
                self.count(geometry),
                f"at most the model's {geometry.num_pairs} frequency pairs",
                "write a smaller number",
            )

    def count(self, geometry: RopeGeometry) -> int:
        if self.num_clipped is not None:
            return self.num_clipped
        return max(2, round(geometry.num_pairs * _CLIPPED / _PAIRS))

    def weights(self, geometry: RopeGeometry) -> Frequencies:
        count = self.count(geometry)
        return np.concatenate([np.ones(geometry.num_pairs - count), self.clipped(count)])

    def clipped(self, count: int) -> Frequencies:
        """Return the weights of the `count` pairs of lowest frequency (count,)."""
        raise NotImplementedError


class PRope(Clipped):
    """p-RoPE: rotate only the share p of the pairs, those of the highest frequencies.

    Design: the other pairs have frequency 0 and stay unrotated at every distance. The rotated pairs
    keep the frequencies that they have in a head where all pairs rotate.
    """

    plugin_name = "p_rope"
    plugin_version = 1
    source = Source(
        paper="arXiv:2410.06205",
        place="section 6, p-RoPE; p = 0.75 has the lowest perplexity in its table 2",
        reference="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/"
        "modeling_rope_utils.py",
        differs="the paper pretrains with p-RoPE; here it can also be applied to a model that was"
        " trained with RoPE, frozen or tuned",
    )
    evidence = (
        frequencies(
            (1.0, 1.0e-1, 1.0e-2, 1.15478198e-3, 0.0, 0.0),
            origin=f"{EXACT}; 48 of 64 pairs rotate; transformers 5.23 'proportional' agrees",
            pairs=(0, 16, 32, 47, 48, 63),
        ),
        frequencies(
            (1.0, 1.77827941e-2, 0.0),
            origin=f"{EXACT}; 8 of 16 pairs rotate",
            pairs=(0, 7, 8),
            geometry=PHI2,
            p=0.5,
        ),
        frequencies(
            (1.0, 3.92418976e-2, 0.0),
            origin=f"{EXACT}; base 1e6, Gemma 4's share in layers of full attention",
            pairs=(0, 15, 16),
            base=1e6,
            p=0.25,
        ),
    )

    p: float = Field(default=0.75, ge=0, lt=1)
    """Share of the pairs that rotate, rounded down to whole pairs."""

    def weights(self, geometry: RopeGeometry) -> Frequencies:
        # As in transformers' "proportional": p times the even rotary dimension, then halved.
        rotated = int(self.p * geometry.rotary_dim // 2)
        return np.where(np.arange(geometry.num_pairs) < rotated, 1.0, 0.0)


class HardClip(ClippedLast):
    """HardClip: set the lowest frequencies to 0, so that their pairs are not rotated.

    Design: p-RoPE with the number of unrotated pairs as parameter. It is the control of CoPE, which
    lowers the same frequencies gradually.
    """

    plugin_name = "hard_clip"
    plugin_version = 1
    source = Source(
        paper="arXiv:2602.05258",
        place="HardClip, the comparison method",
        reference="github.com/hrlics/CoPE@ed52ba5e2d80aaea7577144109c572e93e84e537",
        differs="the number of clipped pairs scales with the model's pairs. The authors train with"
        " base 1e7; here the base is the model's own unless the study states one",
    )
    evidence = (
        frequencies(
            (1.0, 1.0e-2, 2.05352503e-3, 0.0, 0.0),
            origin=f"{EXACT}; pairs 44 to 63 of 64 are not rotated",
            pairs=(0, 32, 43, 44, 63),
        ),
        frequencies(
            (1.0, 1.98095678e-5, 0.0),
            origin=f"{EXACT}; base 1e7 of the authors' training, pairs 44 to 63 are not rotated",
            pairs=(0, 43, 44),
            base=1e7,
            num_clipped=20,
        ),
    )

    def clipped(self, count: int) -> Frequencies:
        return np.zeros(count)


class Cope(ClippedLast):
    """CoPE: lower the lowest frequencies gradually to 0, along half a cosine.

    Design: of the last n pairs, pair k = 0 .. n - 1 has its frequency multiplied by (1 + cos(pi k /
    (n - 1))) / 2. The last pair is not rotated at all. A sharp cut (`hard_clip`) would let
    attention oscillate with the distance, as the spectrum of a cut signal does.
    """

    plugin_name = "cope"
    plugin_version = 1
    source = Source(
        paper="arXiv:2602.05258",
        place="CoPE, soft clipping of low frequencies",
        reference="github.com/hrlics/CoPE@ed52ba5e2d80aaea7577144109c572e93e84e537",
        differs="the number of clipped pairs scales with the model's pairs. The authors train with"
        " base 1e7; here the base is the model's own unless the study states one",
    )
    evidence = (
        frequencies(
            (1.0, 1.77827941e-3, 1.52942523e-3, 2.63590492e-4, 1.07164673e-5, 0.0),
            origin=f"{EXACT}; pairs 44 to 63 of 64 are clipped; the reference's rule in float32"
            " agrees to 6e-8",
            pairs=(0, 44, 45, 53, 60, 63),
        ),
        frequencies(
            (1.0, 1.98095678e-5, 1.18892169e-5, 8.64081568e-7, 1.65025723e-8, 0.0),
            origin=f"{EXACT}; base 1e7 of the authors' training; the reference's rule in float32"
            " agrees to 8e-8",
            pairs=(0, 43, 45, 53, 60, 63),
            base=1e7,
            num_clipped=20,
        ),
        frequencies(
            (1.0, 1.77827941e-3, 8.53553391e-4, 4.63104841e-5, 0.0),
            origin=f"{EXACT}; 5 of 16 pairs are clipped",
            pairs=(0, 11, 12, 14, 15),
            geometry=PHI2,
        ),
    )
    examples = ({}, {"num_clipped": 3})

    def clipped(self, count: int) -> Frequencies:
        return (1 + np.cos(np.linspace(0, math.pi, count))) / 2


class DroPE(Method):
    """DroPE: no rotation in any layer, after training with RoPE.

    Design: all frequencies are 0, so attention sees no positions and nothing is out of range in
    longer texts. The order of the tokens reaches a query only through the causal mask. A model that
    was trained with RoPE needs a short training run without it, at its trained context: leave
    `train_length` at the trained context.
    """

    plugin_name = "drope"
    plugin_version = 1
    source = Source(
        paper="arXiv:2512.12167",
        place="abstract",
        reference="https://github.com/SakanaAI/DroPE/tree/260a8bb9f4fda0673266ddfee7668915aade8b33",
        differs="the reference can also add norms of queries and keys, and replace the factor of"
        " all scores by one number (`softmax_scale`); its training settings use neither by default,"
        " and neither exists here",
    )
    evidence = (
        frequencies(
            (0.0, 0.0, 0.0),
            "custom_models/attention.py of the reference rotates with cosine 1 and sine 0",
            pairs=(0, 32, 63),
        ),
        frequencies(
            (0.0, 0.0, 0.0),
            "the same, for heads of which a part rotates",
            pairs=(0, 8, 15),
            geometry=PHI2,
            layer=31,
        ),
    )

    family: ClassVar[Family] = "interpolation"
    training = "required"

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(np.zeros(geometry.num_pairs))
