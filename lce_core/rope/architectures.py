"""Architectures of transformers whose layers a method can be put on.

Each rotates the two halves of a head against each other, before attention and after any norm of
queries and keys; attends to all earlier tokens in every layer, through AttentionInterface; and
scales by the root of head_dim. tests/lce_core/extension/test_architectures.py compares each with
stock transformers. What is missing here fails one of these: GLM, Helium and Cohere rotate
neighbours, SmolLM3 leaves layers unrotated, Granite scales by a number of its own, Hunyuan has a
norm after the rotation, Gemma 2 and 3 and Olmo 3 slide windows, mixtures of experts cost otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """What a model type has, and what transformers takes for keys that config.json leaves out."""

    gated_mlp: bool = True
    """Three matrices in each MLP instead of two."""
    partial_rotary_factor: float = 1.0
    head_dim_follows: bool = True
    """Without `head_dim` it is hidden_size over heads; else the key is needed."""
    all_heads_have_keys: bool = False
    """Without `num_key_value_heads` every head has keys of its own; else the key is needed."""
    tied_embeddings: bool = False
    slides: bool = False
    """Without `sliding_window` there is one."""
    rounds_cosines: bool = True
    """Its stock layers rotate with cosines of the model's dtype, not in float32."""


ARCHITECTURES = {
    "gemma": Architecture(head_dim_follows=False, tied_embeddings=True),
    "llama": Architecture(all_heads_have_keys=True),
    "mistral": Architecture(slides=True),
    "olmo2": Architecture(all_heads_have_keys=True, rounds_cosines=False),
    "phi": Architecture(gated_mlp=False, partial_rotary_factor=0.5, all_heads_have_keys=True),
    "qwen2": Architecture(),
    "qwen3": Architecture(head_dim_follows=False),
    "stablelm": Architecture(partial_rotary_factor=0.25),
}
"""By `model_type` of config.json."""
