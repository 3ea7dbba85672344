"""Predict the FLOPs and memory traffic of a step from model shape and sequence length.

A matrix product costs 2 FLOPs per weight and token. In a mixture of experts, only the router and
the token's active experts count. Attention (scores and weighted sum of values) costs 4 x layers x
heads x head dimension FLOPs per pair of token and key. In a causal sequence of L tokens, a token
attends to L / 2 keys on average. The backward pass of a matrix product costs twice its forward
pass, or once if its weights receive no gradient. Recomputation does not count, so that the model
FLOPs utilisation (MFU) of runs with and without it can be compared. Embedding lookups count as
free. Generating one token for each sequence of a batch reads all weights once (of the experts at
most the active ones of each sequence), and all cached keys and values of the batch.

The last functions divide a training budget, in tokens or FLOPs, into the optimizer steps of a
variant's runs. A method with stages trains in several runs; its shares are fractions of all tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lce_core.attention import AttentionScheme
from lce_core.attention.schemes import SlidingWindow
from lce_core.data.sequences import Answers
from lce_core.errors import SpecError
from lce_core.execution import Execution
from lce_core.methods import Applied, Method, own_layers
from lce_core.models import LanguageModel, ModelShape
from lce_core.rope import ContextLengths, RopeGeometry


def matmul_parameters(shape: ModelShape, geometry: RopeGeometry, num_tokens: int = 1) -> int:
    queries = geometry.num_heads * geometry.head_dim
    keys = geometry.num_kv_heads * geometry.head_dim
    attention = shape.hidden_size * (2 * queries + 2 * keys)
    matrices = 3 if shape.gated_mlp else 2
    dense, mlps = shape.num_layers, 0
    if experts := shape.experts:
        dense -= experts.num_layers
        active = min(experts.total, num_tokens * experts.active)
        mlps = experts.num_layers * (experts.total + matrices * active * experts.width)
    mlps += dense * matrices * shape.intermediate_size
    return shape.num_layers * attention + shape.hidden_size * (mlps + shape.vocab_size)


def stored_parameters(shape: ModelShape, geometry: RopeGeometry) -> int:
    every = shape.experts.total if shape.experts else 1
    return matmul_parameters(shape, geometry, num_tokens=every)


def num_parameters(base: LanguageModel) -> int:
    """Count a base model's weights: matrices, embedding and norms, but no biases."""
    shape = base.shape
    embedding = 0 if shape.tied_embeddings else shape.vocab_size * shape.hidden_size
    norms = (2 * shape.num_layers + 1) * shape.hidden_size
    return stored_parameters(shape, base.geometry) + embedding + norms


def attention_flops(shape: ModelShape, geometry: RopeGeometry, keys: float) -> float:
    return 4.0 * shape.num_layers * geometry.num_heads * geometry.head_dim * keys


def forward_flops(shape: ModelShape, geometry: RopeGeometry, length: float) -> float:
    """Return the mean forward FLOPs per token of a causal sequence."""
    keys = length / 2
    if local := shape.local:
        fewer = keys - SlidingWindow(local.window).mean_keys(length)
        keys -= fewer * len(local.layers) / shape.num_layers
    return 2.0 * matmul_parameters(shape, geometry) + attention_flops(shape, geometry, keys)


def training_flops(shape: ModelShape, geometry: RopeGeometry, length: int) -> float:
    return 3.0 * forward_flops(shape, geometry, length)


_BATCH_TOKENS: int = Execution.model_fields["micro_batch_tokens"].default
"""Assumed for decoding in fp32; other batch sizes change the cost only slightly."""


@dataclass(frozen=True)
class Decoding:
    """Cost of generated tokens, assuming that every answer has its maximum length."""

    tokens: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    """Bytes read from memory: all weights once per decoding pass, and all cached keys and values of
    the sequence for each generated token."""
    layer_passes: int = 0
    """Decoding passes times layers; each layer takes a fixed time to launch its kernels."""

    def scaled(self, share: float) -> Decoding:
        return Decoding(
            round(share * self.tokens),
            share * self.flops,
            share * self.bytes,
            round(share * self.layer_passes),
        )


@dataclass(frozen=True)
class StepCost:
    """Cost of a step: `tokens` in prompts or training rows, their `flops`, and decoding."""

    tokens: int = 0
    flops: float = 0.0
    decoding: Decoding = field(default_factory=Decoding)

    def scaled(self, share: float) -> StepCost:
        """Return a copy with scaled `tokens` and `flops`, but the same `decoding`."""
        return StepCost(round(share * self.tokens), share * self.flops, self.decoding)

    @property
    def all_flops(self) -> float:
        return self.flops + self.decoding.flops


def total_cost(costs: Sequence[StepCost]) -> StepCost:
    """Return the sum without intermediate objects: a plan can have 100,000 steps."""
    decoding = [cost.decoding for cost in costs]
    return StepCost(
        sum(cost.tokens for cost in costs),
        sum(cost.flops for cost in costs),
        Decoding(
            sum(one.tokens for one in decoding),
            sum(one.flops for one in decoding),
            sum(one.bytes for one in decoding),
            sum(one.layer_passes for one in decoding),
        ),
    )


def pretraining_cost(model: LanguageModel, tokens: int, length: int) -> StepCost:
    """Return the cost of training all weights with full attention, in rows of `length` tokens.

    With `match: flops`, every tuned variant gets the FLOPs that this costs.
    """
    return StepCost(tokens, tokens * training_flops(model.shape, model.geometry, length))


def finetune_cost(
    model: LanguageModel, method: Method, target: int, tokens: int, length: int
) -> StepCost:
    """Return the cost of fine-tuning; the method determines attention and trained weights.

    It is an upper bound for rows with document masks: a plan does not know the documents' lengths.
    """
    weights, attention = _forward(model, method, target, length, training=True)
    # With LoRA the frozen weights propagate gradients but receive none, so their backward pass
    # costs one forward pass instead of two. The few weights of the adapters are not counted.
    passes = 3 if method.lora() is None else 2
    return StepCost(tokens, tokens * (passes * weights + 3 * attention))


def evaluation_cost(
    model: LanguageModel, method: Method, target: int, tokens: int, length: float
) -> StepCost:
    """Return the cost of scoring `tokens` tokens in sequences of mean length `length`."""
    if not tokens:
        return StepCost()
    return StepCost(tokens, tokens * sum(_forward(model, method, target, length, training=False)))


def relative_attention(
    model: LanguageModel, method: Method, target: int, length: int, *, training: bool = False
) -> float:
    """Return the attention FLOPs of a sequence as a share of full attention."""
    attention = _forward(model, method, target, length, training=training)[1]
    return attention / attention_flops(model.shape, model.geometry, length / 2)


def cached_tokens(model: LanguageModel, method: Method) -> float:
    insertion = method.insertion(model.geometry)
    return 1.0 if insertion is None else insertion.block / (insertion.block - 1)


def decoding_cost(
    model: LanguageModel,
    method: Method,
    target: int,
    answers: Answers,
    length: float,
    precision: str,
) -> Decoding:
    """Return the cost of generating answers of maximum length to prompts of mean length `length`.

    The prompt's forward pass already yields an answer's first token. In bf16 each prompt is
    answered alone; in fp32 a batch has as many prompts as fit into a micro-batch.
    """
    tokens = answers.number * answers.longest
    if answers.longest < 2 or not answers.number:
        return Decoding(tokens)
    half = precision == "bf16"
    batch = 1 if half else max(1, min(answers.number, int(_BATCH_TOKENS / length)))
    generated = answers.number * (answers.longest - 1)
    passes = math.ceil(answers.number / batch) * (answers.longest - 1)
    keys = keys_of_last(model, method, target, length + answers.longest / 2)
    weights, element = matmul_parameters(model.shape, model.geometry), 2 if half else 4
    read = matmul_parameters(model.shape, model.geometry, num_tokens=batch)
    stored = 2 * model.shape.num_layers * model.geometry.num_kv_heads * model.geometry.head_dim
    cached = keys * stored
    flops = 2.0 * weights + attention_flops(model.shape, model.geometry, keys)
    return Decoding(
        tokens=tokens,
        flops=generated * flops,
        bytes=element * (passes * read + generated * cached),
        layer_passes=passes * model.shape.num_layers,
    )


def keys_of_last(model: LanguageModel, method: Method, target: int, length: float) -> float:
    """Return the number of keys to which a sequence's last token attends."""
    schemes = _schemes(model, method, target, length, training=False)
    return _mean([_keys_of_last_in(scheme, length) for scheme in schemes])


def _schemes(
    model: LanguageModel, method: Method, target: int, length: float, *, training: bool
) -> list[AttentionScheme | None]:
    """Return the scheme of each layer; None for full attention, windows for local layers."""
    lengths = ContextLengths(model.geometry.trained_context, target, request=round(length))
    attention = method.training_attention if training else method.attention
    shared = attention(model.geometry, lengths)
    own = own_layers(Applied(method, model.geometry, lengths, model.shape.num_layers))
    found = [shared if layer is None else layer.scheme for layer in own]
    for index in model.geometry.unrotated:
        found[index] = None
    if local := model.shape.local:
        for index in local.layers:
            found[index] = SlidingWindow(local.window)
    return found


def _mean(values: Sequence[float]) -> float:
    # Exact if all values are equal, unlike the sum divided by the number.
    return values[0] + sum(value - values[0] for value in values) / len(values)


def _keys_of_last_in(scheme: AttentionScheme | None, length: float) -> float:
    if scheme is None:
        return length
    # The last token's keys are the query-key pairs of `length` tokens minus those of `length - 1`.
    before = length - 1
    return max(1.0, length * scheme.mean_keys(length) - before * scheme.mean_keys(before))


def _forward(
    model: LanguageModel, method: Method, target: int, length: float, *, training: bool
) -> tuple[float, float]:
    """Return forward FLOPs per token of text: (products with weights, attention).

    A token inserted after every `block - 1` tokens of text multiplies the processed tokens by
    `block / (block - 1)`.
    """
    geometry, growth = model.geometry, 1.0
    schemes = _schemes(model, method, target, length, training=training)
    insertion = method.insertion(geometry)
    if insertion is not None:
        length = insertion.train_length if training else length
        growth = insertion.block / (insertion.block - 1)
    length *= growth
    keys = _mean([length / 2 if one is None else one.mean_keys(length) for one in schemes])
    weights = 2.0 * matmul_parameters(model.shape, geometry)
    return growth * weights, growth * attention_flops(model.shape, geometry, keys)


def steps_for_tokens(tokens: int, shares: Sequence[float], tokens_per_step: int) -> list[int]:
    """Return each run's optimizer steps, rounded down; the last run gets the tokens left."""
    parts = [int(share * tokens) for share in shares]
    parts.append(tokens - sum(parts))
    for part in parts:
        if part < tokens_per_step:
            raise SpecError(
                "train_tokens",
                f"{part} tokens for one training run",
                f"at least one step of training, {tokens_per_step} tokens",
                "increase train_tokens or reduce training.tokens_per_step",
            )
    return [part // tokens_per_step for part in parts]


def steps_for_flops(
    flops: float, shares: Sequence[float], flops_per_step: Sequence[float]
) -> list[int]:
    """Return each run's optimizer steps, rounded to the nearest, at least one.

    The last run gets the FLOPs that rounding left of the budget, so all runs together differ from
    it by at most half a step of the last run, unless a run needs its first step.
    """
    *earlier, last = flops_per_step
    mean = sum(share * cost for share, cost in zip(shares, earlier, strict=True))
    num_steps = flops / (mean + (1 - sum(shares)) * last)
    counts = [max(1, round(share * num_steps)) for share in shares]
    left = flops - sum(count * cost for count, cost in zip(counts, earlier, strict=True))
    return [*counts, max(1, round(left / last))]
