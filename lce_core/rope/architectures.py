"""Architectures of transformers to which methods can be applied.

A supported architecture pairs each element of a head's first half with one of its second half and
rotates the pairs before attention, after any norm of queries and keys. Every layer attends to all
earlier tokens through AttentionInterface and divides scores by the square root of head_dim. Gemma 3
has its own divisor. Gemma 3 and gpt-oss have layers with a sliding window, which methods leave
unchanged, and gpt-oss has a learned sink for each head. Experts replace only MLPs.
tests/lce_core/extension compares each architecture with stock transformers. `REASONS` has the
others.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """Properties of a model type, and transformers' defaults for keys that config.json lacks."""

    gated_mlp: bool = True
    """True if each MLP has three matrices (gate, up, down), False if it has two."""
    partial_rotary_factor: float | None = None
    """Default share of rotated elements; None if unscaled stock layers ignore this key and rotate
    whole heads."""
    head_dim_follows: bool = True
    """True if a missing `head_dim` means hidden_size / heads, False if the key is required."""
    all_heads_have_keys: bool = False
    """True if a missing `num_key_value_heads` means one per query head; False: it is required."""
    tied_embeddings: bool = False
    slides: bool = False
    """True if a missing `sliding_window` means that transformers uses a sliding window."""
    rounds_cosines: bool = True
    """True if stock layers rotate with cosines in the model's dtype, False if in float32."""
    default_theta: float = 10_000.0
    expert_width: str | None = None
    """Key of the width of an expert's MLP; None if the model has no experts."""
    full_every: int | None = None
    """Every n-th layer has full attention, the others have a sliding window, if config.json does
    not state `layer_types`. None for models whose layers are all alike."""
    local_theta: float | None = None
    """Default RoPE base of the layers with a sliding window; None if all layers share their
    RoPE."""
    sinks: bool = False
    """True if the softmax of each head has a learned sink, one more term without value."""
    needs_begin: bool = False
    """True if the models' training texts all begin with the beginning-of-text token, so that text
    without it has several times the perplexity."""
    scaled_by_default: bool = False
    """True if transformers scales RoPE when config.json does not state any rotary settings."""
    module: str | None = None
    """Folder of the architecture in transformers; None if it has the name of the model type."""
    has_dense_layers: bool = False
    """True if `decoder_sparse_step` and `mlp_only_layers` may give layers a plain MLP."""


ARCHITECTURES = {
    "gemma": Architecture(head_dim_follows=False, tied_embeddings=True, needs_begin=True),
    "gemma3_text": Architecture(
        head_dim_follows=False,
        tied_embeddings=True,
        module="gemma3",
        default_theta=1e6,
        full_every=6,
        local_theta=1e4,
        needs_begin=True,
    ),
    "gpt_oss": Architecture(
        head_dim_follows=False,
        default_theta=150_000.0,
        expert_width="intermediate_size",
        full_every=2,
        sinks=True,
        scaled_by_default=True,
    ),
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

_ADJACENT = "RoPE that pairs elements half a head apart; this model pairs adjacent elements"
_LATENT = "keys that are cached per head; this model caches a latent (MLA) and rotates part of it"
_RECURRENT = "softmax attention in every layer; some layers of this model are recurrent or linear"
_SLIDING = "full attention in every layer; some layers of this model have a sliding window"
REASONS = {
    "chatglm": _ADJACENT,
    "cohere": _ADJACENT,
    "cohere2": f"{_SLIDING}, others no RoPE",
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "falcon": "attention through AttentionInterface; this model's layers compute their own",
    "falcon_mamba": _RECURRENT,
    "gemma2": f"{_SLIDING}, and scores have a soft cap",
    "glm": _ADJACENT,
    "glm4": _ADJACENT,
    "gpt2": "RoPE; this model has learned position embeddings",
    "granite": "scores divided by the square root of head_dim; this model has its own factor",
    "helium": _ADJACENT,
    "jamba": _RECURRENT,
    "llama4_text": "one attention for all layers; some layers of this model attend inside chunks,"
    " others have no RoPE",
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "minicpm3": _LATENT,
    "ministral3": "queries that depend on positions through RoPE alone; this model also multiplies"
    " them by a factor that grows with the position",
    "nemotron": "layers that split heads before they rotate a part; this model's rotation splits"
    " them",
    "olmo3": _SLIDING,
    "opt": "RoPE; this model has learned position embeddings",
    "phi3": "separate projections of queries, keys and values, which LoRA adapts; this model has"
    " one for all three",
    "qwen3_next": _RECURRENT,
    "smollm3": "RoPE in every layer; some layers of this model have none",
}
"""What architectures that methods cannot extend would have to have; keys are `model_type`. Others,
such as OLMo 1 and InternLM3, may satisfy all conditions, but no test compares them with stock."""
