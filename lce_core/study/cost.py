"""Predict the FLOPs and memory traffic of a step from model shape and sequence length.

A matrix product costs 2 FLOPs per weight and token. In a mixture of experts, only the router and
the token's active experts count. Attention (scores and weighted sum of values) costs 4 x layers x
heads x head dimension FLOPs per pair of token and key. In a causal sequence of L tokens, a token
attends to L / 2 keys on average. The backward pass of a matrix product costs twice its forward
pass, or once if its weights receive no gradient. Recomputation does not count, so that
`model_flops_utilisation` of runs with and without it can be compared. Embedding lookups count as
free. Generating one token for each sequence of a batch reads all weights once (of the experts at
most the active ones of each sequence), and all cached keys and values of the batch.
"""

from __future__ import annotations

from lce_core.attention.schemes import SlidingWindow
from lce_core.models import LanguageModel, ModelShape
from lce_core.rope import RopeGeometry

H100_PEAK_FLOPS = 989e12
"""Dense bf16 peak of one NVIDIA H100 or H200 in FLOP/s, from the data sheet."""


def matmul_parameters(shape: ModelShape, geometry: RopeGeometry, num_tokens: int = 1) -> int:
    """Count the weights in matrix products: attention, MLP and the language-model head."""
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
    """Return the mean forward and backward FLOPs per token of a row."""
    return 3.0 * forward_flops(shape, geometry, length)


def cache_elements(shape: ModelShape, geometry: RopeGeometry) -> int:
    """Return the elements in the key-value cache per token, over all layers."""
    return 2 * shape.num_layers * geometry.num_kv_heads * geometry.head_dim


def model_flops_utilisation(
    tokens_per_second: float,
    flops_per_token: float,
    peak_flops: float = H100_PEAK_FLOPS,
) -> float:
    """Return the model FLOPs utilisation (MFU) of one device, 0..1."""
    return tokens_per_second * flops_per_token / peak_flops
