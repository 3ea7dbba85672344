"""Memory that a method's attention needs in training beyond stock attention, in bytes per process.

Each number follows from the tensors that autograd saves in `lce_core.attention`, or the attention
scheme declares it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lce_core.extension.extended_model import checked_layers
from lce_core.rope import ContextLengths

if TYPE_CHECKING:
    from lce_core.methods import Method
    from lce_core.models import LanguageModel
    from lce_core.training.job import TrainingJob

_KEPT_SCORE_BYTES = 10
"""Bytes that autograd saves per score: scores and weights in fp32 (4 each), weights in bf16 (2)."""
_SCORE_BYTES = 24
"""Bytes per score at the fullest moment: six fp32 tensors in the backward pass of landmark's
log-sum-exp, counted on tensors without values. A plain softmax needs fewer."""


@dataclass(frozen=True)
class AttentionMemory:
    """Memory beyond stock attention, whose values are the defaults."""

    growth: float = 1.0
    """Tokens of the model per token of text; more than 1 with inserted tokens."""
    shared: float = 0.0
    """Cosines and sines that all layers share."""
    kept: float = 0.0
    """Tensors that one layer keeps for its backward pass."""
    peak: float = 0.0
    """`kept` and the temporary tensors of attention's backward pass."""
    fused: bool = True
    """False if no fused kernel runs, so that there is no attention output to keep."""


def attention_memory(job: TrainingJob, base: LanguageModel, method: Method) -> AttentionMemory:
    """Return the needs of the layer that needs most, for the rows of one forward pass."""
    geometry, insertion = base.geometry, method.insertion(base.geometry)
    length, growth = job.row_length, 1.0
    if insertion is not None:
        length, growth = insertion.train_length, insertion.block / (insertion.block - 1)
    lengths = ContextLengths(geometry.trained_context, job.target_context, length)
    layers = checked_layers(
        method, geometry, lengths, base.shape.num_layers, training=True, local=base.local
    )
    tokens, expanded = job.micro_rows * job.row_length * growth, length * growth
    heads, kv_heads = geometry.num_heads, geometry.num_kv_heads
    product = 2 if job.training.precision == "bf16" else 4
    # Rotated states have the memory order (heads, tokens), and so has the kernel's output. The
    # output projection saves a copy in the order (tokens, heads).
    every = tokens * heads * geometry.head_dim * product
    if method.rotary is not None:
        # The gradients of trained frequencies need queries and keys in fp32.
        every += 4 * tokens * (heads + kv_heads) * geometry.rotary_dim
    states = tokens * (heads + 2 * kv_heads) * geometry.head_dim * product
    shared = kept = peak = 0.0
    fused = False
    for layer in {*layers}:
        own, scores = every, 0.0
        if scheme := layer.scheme:
            # fp32 cosines and sines, one table per head if heads have their own frequencies.
            tables = 8 * expanded * layer.table.inv_freq.size * layer.table.rotates
            shared += tables
            # The products with queries and with keys each save sines of both signs.
            own += 2 * tables + scheme.kept_copies * states
            scores = tokens * heads * scheme.scores_in_memory(expanded)
        kept = max(kept, own + _KEPT_SCORE_BYTES * scores)
        peak = max(peak, own + _SCORE_BYTES * scores)
        fused = fused or not scores
    return AttentionMemory(growth, shared, kept, peak, fused)
