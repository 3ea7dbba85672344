"""Estimate a training run's device memory before anything is loaded, and choose its fallbacks.

Memory peaks during the backward pass of one layer or while the loss is computed, when the gradients
of earlier micro-batches already exist. What a method's attention keeps beyond stock attention are
the tensors that autograd saves in `lce_core.attention`, or what the attention scheme declares.

Tests compare these sums with torch's MemTracker at the models' true widths, for every kind of
method that trains. The estimate excludes fragmentation (see `USABLE_FRACTION`).

Fallbacks of a run that is out of memory, cheapest first: fewer rows per forward pass, fewer kept
activations (`lce_core.training.recomputation`), and states in bf16 from the first step on, if the
study allows fp32 and bf16. The first two change only the order of summation and, with dropout,
which activations are dropped. A `gradient_checkpointing` other than "auto" is used exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch

from lce_core.errors import SpecError
from lce_core.extension.extended_model import checked_layers
from lce_core.extension.learned import make_rotary
from lce_core.methods import METHODS, Applied
from lce_core.rope import ContextLengths
from lce_core.study.cost import num_parameters
from lce_core.training.recomputation import attention_layers, every_kept

if TYPE_CHECKING:
    from lce_core.methods import Method
    from lce_core.models import LanguageModel
    from lce_core.training.job import TrainingJob

USABLE_FRACTION = 0.96
"""Fraction of the device's memory that tensors may take; the rest allows for fragmentation, of
which expandable segments (`lce_core.environment.allocator_settings`) leave little. One 80 GB H100
then keeps the attention outputs of Llama-2-7B at 32k, which needs 80.4 of 85 GB."""
_BLOCK_TOKENS = 1024
"""Tokens whose logits exist at one time, the default of `lce_core.evaluation.cross_entropy`."""
_CONTEXT_BYTES = 1.5e9
"""Allowance for CUDA context and workspaces: assumed, not measured. NCCL adds half as much."""
_KEPT_SCORE_BYTES = 10
"""Bytes that autograd saves per score: scores and weights in fp32 (4 each), weights in bf16 (2)."""
_SCORE_BYTES = 24
"""Bytes per score at the fullest moment: six fp32 tensors in landmark's backward pass."""


@dataclass(frozen=True)
class Memory:
    """Estimated bytes on the device of one process, by purpose."""

    states: float
    inputs: float
    """Activations that all layers keep for the backward pass."""
    layer: float
    """Temporary memory of one layer's backward pass or of the loss, the larger of both."""
    gathered: float
    context: float
    """Allowance for the CUDA context, workspaces and NCCL."""

    @property
    def total(self) -> float:
        return float(sum(asdict(self).values()))

    def __str__(self) -> str:
        return (
            f"{self.total / 1e9:.1f} GB: weights, gradients and moments {self.states / 1e9:.1f},"
            f" kept activations {self.inputs / 1e9:.1f}, backward pass of one layer or loss"
            f" {self.layer / 1e9:.1f}, gathered weights {self.gathered / 1e9:.1f}, CUDA"
            f" {self.context / 1e9:.1f}"
        )


@dataclass(frozen=True)
class _AttentionMemory:
    """Bytes beyond stock attention, whose values are the defaults."""

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


def estimate(
    job: TrainingJob, base: LanguageModel, method: Method | None = None, *, sharded: bool
) -> Memory:
    shape, geometry = base.shape, base.geometry
    width, vocab = shape.hidden_size, shape.vocab_size
    experts = shape.experts
    # Width of the MLP that a token passes, and weights of its largest matrix. transformers keeps
    # the gate and up projections of all experts of a layer in one tensor.
    wide = experts.active * experts.width if experts else shape.intermediate_size
    largest = width * (2 * experts.total * experts.width if experts else wide)
    lora = method.lora() if method else None
    extra = _AttentionMemory() if method is None else _attention_memory(job, base, method)
    tokens = job.micro_rows * job.row_length * extra.growth
    stored = 2 if job.state_precision == "bf16" else 4
    # Bytes of a weight during a pass, and of an activation between layers.
    element = 2 if job.casts_weights else stored
    # Bytes of an activation: products run in bf16 under autocast and with bf16 weights.
    product = 2 if job.training.precision == "bf16" else 4
    mixed = product < element
    shares = job.processes if sharded else 1

    parameters = num_parameters(base)
    ends = vocab * width * (1 if shape.tied_embeddings else 2)
    of_layer = (parameters - ends) / shape.num_layers
    trained = parameters
    if lora is not None:  # as if every target layer were square
        trained = shape.num_layers * len(lora.targets) * 2 * lora.rank * width
        trained += any("embed" in part for part in lora.whole) * vocab * width
    # Per trained weight: its gradient and AdamW's two moments; the EMA is always fp32.
    average = 4 * trained if job.training.ema_decay else 0
    states = (stored * parameters + 3 * stored * trained + average) / shares

    # Bytes per token that autograd saves of one layer besides the layer's input, from the saved
    # tensors of transformers' LlamaDecoderLayer.
    # heads: query, key, value and attention output.
    heads = product * 2 * (geometry.num_heads + geometry.num_kv_heads) * geometry.head_dim
    # mlp: gate, up, activation and their product. Phi's MLP has no gate, but its GELU is a chain of
    # products and a tanh that each save their operands: five tensors in all.
    mlp = (4 if shape.gated_mlp else 5) * product * wide
    if experts:
        # Each active expert gets a copy of the token and returns one hidden state, whose weighted
        # copy is saved as well.
        mlp += 3 * product * experts.active * width
    # hidden: bytes per element of the hidden size.   autocast   bf16 weights   fp32
    #   both norms: fp32 copy of the input                -         2 x 4          -
    #   both norms: normalised states                   2 x 4       2 x 2        2 x 4
    #   both norms: output, the linear layers' input      -         2 x 2        2 x 4
    #   bf16 copy of the input for q, k, v, gate, up    5 x 2         -            -
    #   second norm: its own input                        4           -            4
    hidden = 22 if mixed else 16 if product == 2 else 20
    saved = hidden * width + heads + mlp
    # Autocast also keeps a bf16 copy of each of the layer's weights.
    copies = of_layer * 2 if mixed else 0
    # Transient bytes per token during the layer's backward pass: gradients of the layer's output
    # and of about two MLP activations (half of `mlp`), cosines and sines and, divided by the number
    # of tokens, the gradient of one MLP matrix.
    slope = product * (width + 2 * geometry.head_dim + largest / tokens) + mlp / 2
    # When attention's backward pass begins, the saved tensors of the MLP are gone, and those of one
    # norm and of attention remain.
    attending = tokens * (hidden / 2 * width + heads) + extra.peak
    layer = max(tokens * (saved + slope) + extra.kept, attending) + copies

    # Per layer: its input; with "attention" also the attention output and one fp32 log-sum-exp per
    # head, except for the layer being recomputed. With "none" and bf16 weights the first norm's
    # fp32 copy, which is part of `saved`, replaces the layer's input. "offload" leaves room for two
    # inputs on the device.
    residual = tokens * width * element
    attended = tokens * geometry.num_heads * (product * geometry.head_dim + 4) * extra.fused
    inputs = (2 if job.kept == "offload" else shape.num_layers) * residual
    inputs += min(attention_layers(job.kept, shape.num_layers), shape.num_layers - 1) * attended
    if job.kept == "none":
        of_layer_kept = residual * (element == 4) + tokens * saved + copies + extra.kept
        inputs = shape.num_layers * of_layer_kept
        layer = max(tokens * slope, attending - tokens * saved - extra.kept)
    # Per element of the head's weight: its gradient in fp32 (4), the product of each block or the
    # gradient cast to bf16 and, under autocast, the head's bf16 copy (2). Per element of the hidden
    # states: the states, their gradient and the fp32 states that the last norm saves (4). Per logit
    # of a block 12: the previous block's fp32 logits (4) and their bf16 gradient (2) are still
    # referenced while the next block's product (2) and its fp32 copy (4) are made; in fp32 the
    # logits, their gradient and the next block's product take 4 each.
    head = vocab * width * (4 + product + 2 * mixed)
    loss = head + tokens * width * (2 * element + 4) + 12 * _BLOCK_TOKENS * vocab
    # The last norm's backward pass: its fp32 input and five fp32 products of this size.
    norm = 24 * tokens * width

    gathered = 0.0
    if sharded:
        # Gathered at a time: weights and gradients of the present layer, weights of the next layer
        # and gradient sums in fp32; embedding and head with their gradients and fp32 sums.
        gathered = of_layer * (3 * element + 4) + ends * (2 * element + 4)
    return Memory(
        states=states,
        inputs=inputs,
        layer=max(layer, loss, norm) + extra.shared,
        gathered=gathered,
        context=_CONTEXT_BYTES * (1.5 if sharded else 1),
    )


def _attention_memory(job: TrainingJob, base: LanguageModel, method: Method) -> _AttentionMemory:
    geometry, insertion = base.geometry, method.insertion(base.geometry)
    length, growth = job.row_length, 1.0
    if insertion is not None:
        length, growth = insertion.train_length, insertion.block / (insertion.block - 1)
    lengths = ContextLengths(geometry.trained_context, job.target_context, length)
    applied = Applied(method, geometry, lengths, base.shape.num_layers)
    layers = checked_layers(applied, base, training=True)
    tokens, expanded = job.micro_rows * job.row_length * growth, length * growth
    heads, kv_heads = geometry.num_heads, geometry.num_kv_heads
    product = 2 if job.training.precision == "bf16" else 4
    # Rotated states have the memory order (heads, tokens), and so has the kernel's output. The
    # output projection saves a copy in the order (tokens, heads).
    every = tokens * heads * geometry.head_dim * product
    if method.rotary is not None:
        # The gradients of trained frequencies need queries and keys in fp32.
        every += 4 * tokens * (heads + kv_heads) * geometry.rotary_dim
        rotary = make_rotary(applied, identity=False, seed=0)
        # Angles in fp64, cosines and sines in fp32.
        every += 12 * expanded * rotary.own_tables * geometry.rotary_dim
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
    return _AttentionMemory(growth, shared, kept, peak, fused)


def all_fallbacks(job: TrainingJob, num_layers: int) -> list[TrainingJob]:
    """Return the job and copies of it with one more fallback each."""
    found = [job.model_copy(update={"gradient_checkpointing": job.kept})]
    while found[-1].micro_rows > 1:
        fewer = found[-1].micro_rows // 2 * job.row_length
        found.append(found[-1].model_copy(update={"micro_batch_tokens": fewer}))
    kept = every_kept(num_layers)
    # All layers may be named as "attention:K" too.
    present = job.kept if job.kept in kept else "attention"
    for name in kept[kept.index(present) + 1 :]:
        found.append(found[-1].model_copy(update={"gradient_checkpointing": name}))
    if job.training.state_precision == "fp32_or_bf16" and job.state_precision == "fp32":
        # bf16 states need half the memory, so layers may again keep more than in the last fp32
        # fallback. The two precisions have separate resume folders because a run may not change its
        # precision midway: the precision in its record must hold for all steps.
        bf16 = {"states": "bf16", "resume": job.resume / "bf16"}
        found += [one.model_copy(update=bf16) for one in found if one.micro_rows == 1]
    return found


def worth_trying(
    job: TrainingJob, base: LanguageModel, device: torch.device, capacity: int | None
) -> Sequence[TrainingJob]:
    """Return the job, or copies of it that need less memory, in the order in which to try them.

    The list starts with the first job whose estimated memory fits `capacity` bytes (if none fits,
    it has only the last fallback) or, if the memory is unknown or `gradient_checkpointing` is not
    "auto", with `job` itself.
    """
    found = all_fallbacks(job, base.shape.num_layers)
    # A failed attempt halves the number of layers that keep attention.
    half = f"attention:{base.shape.num_layers // 2}"
    named = [one for one in found if ":" not in one.kept or one.kept in (job.kept, half)]
    if capacity is None:
        return named
    needs = [need(one, base, device) for one in found]
    if min(memory.states + memory.context for memory in needs) > capacity:
        raise too_small(found[-1], base, device, capacity, ())
    if job.gradient_checkpointing != "auto":
        return named
    fits = (
        place for place, memory in enumerate(needs) if memory.total <= USABLE_FRACTION * capacity
    )
    first = next(fits, len(found) - 1)
    return [found[first], *(one for one in found[first + 1 :] if one in named)]


def need(job: TrainingJob, base: LanguageModel, device: torch.device) -> Memory:
    method = None if job.method is None else METHODS.from_identity(job.method)
    return estimate(job, base, method, sharded=job.is_sharded(device))


def described(job: TrainingJob) -> str:
    rows = "1 row" if job.micro_rows == 1 else f"{job.micro_rows} rows"
    return f"{rows} a pass, gradient_checkpointing {job.kept}, {job.state_precision} states"


def too_small(
    job: TrainingJob,
    base: LanguageModel,
    device: torch.device,
    capacity: int | None,
    failed: Sequence[str],
) -> SpecError:
    """Return the error for a run that is out of memory even with its last fallback."""
    has = "an unknown amount" if capacity is None else f"{capacity / 1e9:.1f} GB"
    tried = f" (out of memory: {'; '.join(failed)})" if failed else ""
    bf16 = job.state_precision == "fp32" and job.training.precision == "bf16"
    return SpecError(
        "device memory",
        f"{has} on each of {job.processes} {device.type} device(s){tried}",
        f"about {need(job, base, device)}, with {described(job)}",
        "raise execution.processes" + (", or set state_precision: bf16 in the study" * bf16),
    )
