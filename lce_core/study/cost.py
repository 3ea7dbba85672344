"""What a step costs: FLOPs and bytes, from shapes and lengths.

Matrix products count 2 FLOPs for each weight and token. Scores and their product with the values
cost 4 x layers x width FLOPs for each token and key; causal attention lets a token see L / 2 keys
on average. A backward pass costs twice the forward pass, or once for weights that get no gradient;
recomputation is not counted, so that `model_flops_utilisation` compares runs with and without it.
Embedding look-ups cost nothing. Generating a token reads all weights once for a batch, and the
cached keys and values of each text in it.
"""

from __future__ import annotations

from lce_core.models import ModelShape
from lce_core.rope import RopeGeometry

H100_PEAK_FLOPS = 989e12
"""Dense bf16 peak of one H100 or H200, FLOP/s."""


def matmul_parameters(shape: ModelShape, geometry: RopeGeometry) -> int:
    """Weights that each token is multiplied with: layers and language-model head."""
    queries = geometry.num_heads * geometry.head_dim
    keys = geometry.num_kv_heads * geometry.head_dim
    attention = shape.hidden_size * (2 * queries + 2 * keys)
    mlp = (3 if shape.gated_mlp else 2) * shape.hidden_size * shape.intermediate_size
    return shape.num_layers * (attention + mlp) + shape.hidden_size * shape.vocab_size


def attention_flops(shape: ModelShape, geometry: RopeGeometry, keys: float) -> float:
    """FLOPs of scores and weighted values of a forward pass for a token that sees `keys` keys."""
    return 4.0 * shape.num_layers * geometry.num_heads * geometry.head_dim * keys


def forward_flops(shape: ModelShape, geometry: RopeGeometry, length: float) -> float:
    """FLOPs of a forward pass per token, full causal attention over `length` tokens."""
    return 2.0 * matmul_parameters(shape, geometry) + attention_flops(shape, geometry, length / 2)


def training_flops(shape: ModelShape, geometry: RopeGeometry, length: int) -> float:
    """FLOPs of forward and backward pass per token for rows of `length` tokens."""
    return 3.0 * forward_flops(shape, geometry, length)


def cache_elements(shape: ModelShape, geometry: RopeGeometry) -> int:
    """Numbers that the key-value cache holds for a token."""
    return 2 * shape.num_layers * geometry.num_kv_heads * geometry.head_dim


def model_flops_utilisation(
    tokens_per_second: float,
    flops_per_token: float,
    peak_flops: float = H100_PEAK_FLOPS,
) -> float:
    """Share of the hardware's peak that useful FLOPs reach, for one device."""
    return tokens_per_second * flops_per_token / peak_flops
