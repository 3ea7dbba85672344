"""NoPE hybrid (iRoPE): every fourth layer is unrotated, all others keep the base model's RoPE.

Design: layer i, counted from 0, is unrotated if (i + 1) % every = 0. The query at position p of an
unrotated layer is multiplied by attn_scale * ln(floor((p + 1) / floor_scale) + 1) + 1, so that
attention does not flatten in long texts.

Source: Llama 4 (Meta 2025), as in transformers. Without the factor (attn_scale 0), layers with and
without rotation alternate as in Yang et al. 2025, arXiv:2501.18795.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from pydantic import Field

from lce_core.attention.schemes import FullCausal
from lce_core.evidence import frequencies, value
from lce_core.methods import Family, LayerAttention, Method
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

if TYPE_CHECKING:
    import torch

    from lce_core.attention.inputs import AttentionInputs


@dataclass(frozen=True)
class Sharpened(FullCausal):
    """Full attention that becomes sharper with the position of the query."""

    scale: float
    """Strength of the factor of queries."""
    floor: int
    """Number of positions that share a factor."""

    kernel: ClassVar[str] = f"{__name__}:attend"

    def query_factor(self, query: int) -> float:
        return self.scale * math.log((query + 1) // self.floor + 1) + 1


def attend(scheme: Sharpened, inputs: AttentionInputs) -> torch.Tensor:
    from lce_core.attention.causal import full_causal

    # `counts` are exact, so the division rounds none to another factor.
    sharpened = inputs.sharpened(
        lambda counts: scheme.scale * (counts / scheme.floor).floor().log1p() + 1
    )
    return full_causal(scheme, sharpened)


class NoPEHybrid(Method):
    """Every fourth layer without rotation, for models that are tuned with it."""

    family: ClassVar[Family] = "interpolation"
    training = "required"

    every: int = Field(default=4, ge=2)
    """The last of every `every` layers is unrotated; at most the number of layers."""
    attn_scale: float = Field(default=0.1, ge=0)
    """Strength of the factor of queries in unrotated layers; 0 leaves queries as they are."""
    floor_scale: int = Field(default=8192, ge=1)
    """Number of positions after which the factor of queries rises."""

    def layer(
        self, index: int, geometry: RopeGeometry, lengths: ContextLengths
    ) -> LayerAttention | None:
        if (index + 1) % self.every:
            return None
        scheme = Sharpened(self.attn_scale, self.floor_scale) if self.attn_scale else None
        return LayerAttention(RopeTable(np.zeros(geometry.num_pairs)), scheme)


METHOD = NoPEHybrid
SOURCE = Source(
    paper="https://ai.meta.com/blog/llama-4-multimodal-intelligence/",
    place="iRoPE",
    reference="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/models/"
    "llama4/modeling_llama4.py",
    differs="Llama 4 is pretrained so; here a model that was trained with RoPE is tuned. Rotated"
    " layers see all tokens, in Llama 4 only those of a chunk of 8,192, and queries and keys have"
    " no norm",
)
_OWN = "the base model's: 1e4 ** (-2i / 128)"
EVIDENCE = (
    *(
        frequencies((1.0, 0.01), _OWN, pairs=(0, 32), layer=layer)
        for layer in (0, 1, 2, 4, 5, 6, 8, 30)
    ),
    *(
        frequencies((0.0, 0.0), "transformers 5.23, no_rope_layers", pairs=(0, 32), layer=layer)
        for layer in (3, 7, 11, 31)
    ),
    frequencies((0.0, 0.0), "every second layer, by hand", pairs=(0, 32), layer=1, every=2),
    value(
        "query_factor",
        (1.0, 1.0, 1.0693147, 1.0693147, 1.1098612, 1.2833213),
        "0.1 ln n + 1 with n = 1, 1, 2, 2, 3, 17, by hand",
        positions=((0,), (8190,), (8191,), (16382,), (16383,), (131071,)),
        layer=3,
    ),
)
EXAMPLES: Examples = ({"every": 2, "attn_scale": 0.0}, {"every": 2, "floor_scale": 6})
VERSION = 1
