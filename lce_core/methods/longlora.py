"""LongLoRA: shifted sparse attention and low-rank updates in training, full attention at inference.

Design: PI's frequencies. In training, attention stays inside blocks of a quarter of the row. Half
of the heads use blocks shifted by half a block, so that neighbouring blocks exchange information.
Attention projections get low-rank updates, embeddings and norms are trained directly, and all other
weights are frozen. The checkpoint contains the merged weights and is used like a checkpoint of PI.
As in LCEG, the method counts as approximate because of its training.
"""

from pydantic import Field

from lce_core.attention.schemes import ShiftedSparse
from lce_core.errors import SpecError
from lce_core.evidence import EXACT, PHI2, frequencies, value
from lce_core.methods import LoRA, ScaledMethod
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

TARGETS = ("q_proj", "k_proj", "v_proj", "qkv_proj", "o_proj", "dense")
"""Attention projections that get low-rank updates; o_proj of Llama is called dense in Phi. Phi-3
has one projection for queries, keys and values, like GPT-NeoX in the reference."""
WHOLE = ("embed", "norm")


class LongLora(ScaledMethod):
    """Shifted sparse attention with low-rank updates, for training."""

    family = "approximate"
    exact_attention = False
    training = "required"

    scale: float | None = None
    """Divisor of all frequencies, as in pi; None means target / trained context."""
    num_groups: int = Field(default=4, ge=1)
    """Number of equal blocks into which attention cuts a training row."""
    rank: int = Field(default=8, ge=1)
    """Rank of the low-rank updates."""
    alpha: float = Field(default=16.0, gt=0)
    """Low-rank updates are multiplied by alpha / rank."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq() / self.scale_for(lengths))

    def training_attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> ShiftedSparse:
        return ShiftedSparse(group=self._group(lengths.request))

    def lora(self) -> LoRA:
        return LoRA(self.rank, self.alpha, TARGETS, WHOLE)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        super().check(geometry, lengths)
        self._group(lengths.target)
        if geometry.num_heads < 2:
            raise SpecError(
                "longlora",
                f"a model with {geometry.num_heads} attention head",
                "at least 2 heads, half of which see shifted blocks",
                "choose another base model or method",
            )

    def _group(self, row: int) -> int:
        if row % (2 * self.num_groups):
            raise SpecError(
                "longlora.num_groups",
                f"{self.num_groups} for training rows of {row} tokens",
                "a number that cuts rows into equal blocks with an even number of tokens",
                f"make the target context a multiple of {2 * self.num_groups}, or change"
                " num_groups",
            )
        return row // self.num_groups


METHOD = LongLora
SOURCE = Source(
    paper="arXiv:2309.12307",
    place="sections 3.2 and 3.3; settings from tables 7, 8 of LCEG (arXiv:2409.12181)",
    reference="https://github.com/dvlab-research/LongLoRA/tree/d4eb344",
    differs="no block wraps around the row, as in the reference's flash attention path, with which"
    " LCEG trained; the reference's other path rolls the row and lets the first tokens see the last"
    " ones. Of an odd number of heads, the first half is the smaller one. If embedding and language"
    " model head share a weight, the head is trained too. Angles are computed in float64",
)
EVIDENCE = (
    frequencies(
        (1.25e-1, 1.082455e-1, 1.25e-2, 1.443477e-3, 1.25e-3, 1.25e-4, 1.443477e-5), origin=EXACT
    ),
    frequencies(
        (6.25e-2, 3.51463333e-2),
        origin="transformers 5.23 'linear', factor 16, Phi-2",
        pairs=(0, 1),
        geometry=PHI2,
    ),
    value(
        "training_distance",
        (0, 8191, None, None, 1),
        "the reference's cu_seqlens 0, 8192, 16384, 24576, 32768 for heads 0 to 15 of 32",
        positions=(
            (0, 0, False),
            (8191, 0, False),
            (8192, 8191, False),
            (8191, 8192, False),
            (32767, 32766, False),
        ),
    ),
    value(
        "training_distance",
        (4095, None, 8191, None, 4095, None),
        "the reference's cu_seqlens 0, 4096, 12288, 20480, 28672, 32768 for heads 16 to 31 of 32",
        positions=(
            (4095, 0, True),
            (4096, 4095, True),
            (12287, 4096, True),
            (28672, 28671, True),
            (32767, 28672, True),
            (0, 32767, True),
        ),
    ),
)
VERSION = 1
