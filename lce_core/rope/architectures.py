"""Architectures of transformers to which methods can be applied.

A supported architecture pairs each element of a head's first half with one of its second half and
rotates the pairs before attention, after any norm of queries and keys. Every layer attends to all
earlier tokens through AttentionInterface and divides scores by the square root of head_dim.
tests/lce_core/extension/test_architectures.py compares each with stock transformers.

Other architectures violate one of these conditions: GLM, Helium and Cohere rotate adjacent
elements, SmolLM3 leaves layers unrotated, Granite has its own scaling factor, Hunyuan applies a
norm after the rotation, Gemma 2 and 3 and Olmo 3 use sliding windows. Experts replace only MLPs, so
methods apply to mixtures of experts as to dense models.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Properties of a model type, and transformers' defaults for keys that config.json lacks."""

    gated_mlp: bool = True
    """True if each MLP has three matrices (gate, up, down), False if it has two."""
    partial_rotary_factor: float = 1.0
    head_dim_follows: bool = True
    """True if a missing `head_dim` means hidden_size / heads, False if the key is required."""
    all_heads_have_keys: bool = False
    """True if a missing `num_key_value_heads` means one per query head, False if the key is
    required."""
    tied_embeddings: bool = False
    slides: bool = False
    """True if a missing `sliding_window` means that transformers uses a sliding window."""
    rounds_cosines: bool = True
    """True if stock layers rotate with cosines in the model's dtype, False if in float32."""
    default_theta: float = 10_000.0
    expert_width: str | None = None
    """Key of the width of an expert's MLP; None if the model has no experts."""
    has_dense_layers: bool = False
    """True if `decoder_sparse_step` and `mlp_only_layers` may give layers a plain MLP instead of
    experts."""


ARCHITECTURES = {
    "gemma": Architecture(head_dim_follows=False, tied_embeddings=True),
    "llama": Architecture(all_heads_have_keys=True),
    "mistral": Architecture(slides=True),
    "mixtral": Architecture(default_theta=1e6, expert_width="intermediate_size"),
    "olmo2": Architecture(all_heads_have_keys=True, rounds_cosines=False),
    "phi": Architecture(gated_mlp=False, partial_rotary_factor=0.5, all_heads_have_keys=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(head_dim_follows=False),
    "qwen3_moe": Architecture(expert_width="moe_intermediate_size", has_dense_layers=True),
    "stablelm": Architecture(partial_rotary_factor=0.25),
}
"""Supported architectures; keys are the `model_type` of config.json."""
