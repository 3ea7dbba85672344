"""Device memory that training needs, before anything is loaded.

A step is fullest while the backward pass goes through a layer, or while the loss is computed, with
the gradients of earlier micro-batches already there. What is counted, in bytes of one process:

    T tokens of a micro-batch, h hidden size, q and k width of all query and all key heads,
    m width of the MLP, V vocabulary, n layers, P parameters, N processes that share the model

- states: weights, gradients and two moments, 16 P / N in fp32 and 8 P / N in bf16; average 4 P / N;
- inputs of layers: n T h numbers, in fp32 under autocast and in bf16 where weights are;
- with attention kept: (n - 1) T (2 q + 4 heads), its output in bf16 and log-sum-exp in fp32;
- one layer computed again, with the gradients at its widest place, and bf16 copies of its weights;
- loss: gradients of the head and of the hidden states, one block of logits;
- gathered: shared layers, embedding and head while they are whole.

Tests compare the sums with torch's MemTracker on true widths. Not counted: fragments between
allocations, which `SHARE` leaves room for, and methods whose attention keeps more than SDPA does.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lce_core.study.cost import matmul_parameters

if TYPE_CHECKING:
    from lce_core.methods import LoRA
    from lce_core.models import LanguageModel
    from lce_core.training.job import TrainingJob

SHARE = 0.93
"""Of a device's memory that tensors may take; the rest is lost between them."""
_BLOCK_TOKENS = 1024
"""Tokens whose logits exist at one time, as in `lce_core.evaluation.cross_entropy`."""
_CONTEXT_BYTES = 1.5e9
"""CUDA's context and workspaces of its libraries, roughly; NCCL's buffers half as much again."""


@dataclass(frozen=True)
class Memory:
    """Bytes of one process's device, by purpose."""

    states: float
    """Weights, gradients, moments and average."""
    inputs: float
    """What all layers keep."""
    layer: float
    """What the layer at hand or the loss needs, whichever is more."""
    gathered: float
    """Weights of other processes, and their gradients, while they are used."""
    context: float

    @property
    def total(self) -> float:
        """Everything."""
        return float(sum(asdict(self).values()))

    def __str__(self) -> str:
        return (
            f"{self.total / 1e9:.1f} GB: weights, gradients and moments {self.states / 1e9:.1f},"
            f" what layers keep {self.inputs / 1e9:.1f}, one layer or the loss"
            f" {self.layer / 1e9:.1f}, gathered weights {self.gathered / 1e9:.1f}, CUDA"
            f" {self.context / 1e9:.1f}"
        )


def num_parameters(base: LanguageModel) -> int:
    """Weights of a base model: matrices, embedding and norms; biases are left out."""
    shape = base.shape
    embedding = 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size
    norms = (2 * shape.num_layers + 1) * shape.hidden_size
    return matmul_parameters(shape, base.geometry) + embedding + norms


def estimate(
    job: TrainingJob, base: LanguageModel, *, sharded: bool, lora: LoRA | None = None
) -> Memory:
    """What one process of a run needs.

    Args:
      job: what is trained, and how.
      base: its base model.
      sharded: whether processes share the model.
      lora: what is trained instead of all weights, if anything.
    """
    shape, geometry = base.shape, base.geometry
    width, wide, vocab = shape.hidden_size, shape.intermediate_size, shape.vocab_size
    heads = 4 * (geometry.num_heads + geometry.num_kv_heads) * geometry.head_dim
    tokens = job.micro_rows * job.row_length
    element = 2 if job.state_precision == "bf16" else 4
    half = job.training.precision == "bf16"
    mixed = half and element == 4
    shares = job.processes if sharded else 1

    parameters = num_parameters(base)
    ends = vocab * width * (1 if shape.tied_embeddings else 2)
    of_layer = (parameters - ends) / shape.num_layers
    trained = parameters if lora is None else _low_rank(lora, base)
    average = 4 * trained if job.training.ema_decay else 0
    states = (element * parameters + 3 * element * trained + average) / shares

    # What autograd saves of a layer for each token: two norms, attention, MLP, residual.
    # Phi's activation is made of products and a tanh, each of which keeps its operands.
    mlp = (4 if shape.gated_mlp else 5) * 2 * wide
    copies = of_layer * 2 if mixed else 0
    if half:
        saved = (22 if mixed else 16) * width + heads + mlp
    else:
        saved = 20 * width + 2 * heads + 2 * mlp
    slope = 2 * width + mlp / 2 + 4 * geometry.head_dim + 2 * wide * width / tokens
    layer = tokens * (saved + slope) + copies

    residual = tokens * width * element
    attended = tokens * geometry.num_heads * (2 * geometry.head_dim + 4)
    inputs = {
        "none": shape.num_layers * (residual * mixed + tokens * saved + copies),
        "attention": shape.num_layers * residual + (shape.num_layers - 1) * attended,
        "full": shape.num_layers * residual,
        "offload": 2 * residual,
    }[job.kept]
    if job.kept == "none":
        layer = tokens * slope
    head = vocab * width * (6 + 2 * mixed)
    loss = head + tokens * width * (2 * element + 4) + 12.0 * _BLOCK_TOKENS * vocab

    gathered = 0.0
    if sharded:
        # Whole weights and gradients of the layer at hand, weights of the next, sums in fp32.
        gathered = of_layer * (3 * element + 4) + ends * (2 * element + 4)
    return Memory(
        states=states,
        inputs=inputs,
        layer=max(layer, loss),
        gathered=gathered,
        context=_CONTEXT_BYTES * (1.5 if sharded else 1),
    )


def _low_rank(lora: LoRA, base: LanguageModel) -> float:
    """Weights that are trained through LoRA, about: every target as wide as the hidden size."""
    shape = base.shape
    updates = shape.num_layers * len(lora.targets) * 2 * lora.rank * shape.hidden_size
    whole = any("embed" in part for part in lora.whole)
    return float(updates + whole * shape.vocab_size * shape.hidden_size)
