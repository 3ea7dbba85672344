"""Architectures of transformers to which methods can be applied.

A supported architecture rotates queries and keys before attention, after any norm of them. Every
layer attends to all earlier tokens through AttentionInterface. Exceptions that lce reproduces are
the fields of `Architecture`; factors of scores and logits are read from the loaded model.
tests/lce_core/extension compares each architecture with stock transformers. `REASONS` has the
others.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Architecture:
    """Properties of a model type, and transformers' defaults for keys that config.json lacks."""

    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Values of transformers for missing keys; other keys that sizes need are required."""
    gated_mlp: bool = True
    """True if each MLP has three matrices (gate, up, down), False if it has two."""
    partial_rotary_factor: float | None = None
    """Default share of rotated elements; None if unscaled stock layers ignore this key."""
    all_heads_have_keys: bool = False
    """True if a missing `num_key_value_heads` means one per query head; False: it is required."""
    rounds_cosines: bool = True
    """True if stock layers rotate with cosines in the model's dtype, False if in float32."""
    adjacent: bool = False
    """True if elements 2i and 2i + 1 of a head form pair i, False if i and i + pairs do."""
    repeats_cosines: bool = False
    """True if stock layers expect each cosine twice in a row, as for adjacent elements."""
    passes_heads: bool = False
    """True if stock layers pass heads as a whole to the function that rotates a part of them."""
    expert_width: str | None = None
    """Key of the width of an expert's MLP; None if the model has no experts."""
    full_every: int | None = None
    """Every n-th layer has full attention, the others have a sliding window, if config.json does
    not state `layer_types`. None for models whose layers are all alike."""
    local_theta: float | None = None
    """Default RoPE base of sliding layers; None if all layers share their RoPE."""
    sinks: bool = False
    """True if the softmax of each head has a learned sink, one more term without value."""
    soft_caps: Mapping[str, float] = field(default_factory=dict)
    """Defaults of the two keys whose number c turns scores and logits x into c tanh(x / c)."""
    needs_begin: bool = False
    """True if text without the beginning-of-text token has several times the perplexity."""
    scaled_by_default: bool = False
    """True if transformers scales RoPE when config.json does not state any rotary settings."""
    only_longrope: bool = False
    """True if transformers accepts no other `rope_type` than "default" and "longrope"."""
    has_dense_layers: bool = False
    """True if `decoder_sparse_step` and `mlp_only_layers` may give layers a plain MLP."""
    has_own_code: bool = False
    """True if published files name code (`auto_map`) that transformers adopted."""

    @property
    def stock_attention(self) -> str:
        """Transformers' attention of stock models: its SDPA has no sinks and caps no scores."""
        return "eager" if self.sinks or self.soft_caps else "sdpa"


NO_ROPE_INTERVAL = "no_rope_layer_interval"
"""Key of models whose every n-th layer has no rotation, unless `no_rope_layers` says otherwise."""
_TIED = {"tie_word_embeddings": True}
_GLM = Architecture(
    defaults={"head_dim": 128}, partial_rotary_factor=0.5, adjacent=True, passes_heads=True
)

ARCHITECTURES = {
    "cohere": Architecture(
        defaults={**_TIED, "rope_theta": 500_000.0},
        all_heads_have_keys=True,
        adjacent=True,
        repeats_cosines=True,
    ),
    "gemma": Architecture(defaults={**_TIED, "head_dim": 256}, needs_begin=True),
    "gemma2": Architecture(
        defaults={**_TIED, "head_dim": 256, "sliding_window": 4096},
        full_every=2,
        soft_caps={"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
        needs_begin=True,
    ),
    "gemma3_text": Architecture(
        defaults={
            **_TIED,
            "rope_theta": 1e6,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "vocab_size": 262_208,
            "max_position_embeddings": 131_072,
        },
        full_every=6,
        local_theta=1e4,
        needs_begin=True,
    ),
    "glm": _GLM,
    "glm4": _GLM,
    "gpt_oss": Architecture(
        defaults={"rope_theta": 150_000.0, "head_dim": 64},
        expert_width="intermediate_size",
        full_every=2,
        sinks=True,
        scaled_by_default=True,
    ),
    "granite": Architecture(all_heads_have_keys=True),
    "helium": Architecture(defaults={"rope_theta": 1e5, "head_dim": 128}, adjacent=True),
    "llama": Architecture(all_heads_have_keys=True),
    "mistral": Architecture(defaults={"sliding_window": 4096}),
    "mixtral": Architecture(defaults={"rope_theta": 1e6}, expert_width="intermediate_size"),
    "nemotron": Architecture(gated_mlp=False, partial_rotary_factor=0.5, passes_heads=True),
    "olmo2": Architecture(all_heads_have_keys=True, rounds_cosines=False),
    "olmo3": Architecture(
        defaults={"rope_theta": 500_000.0},
        all_heads_have_keys=True,
        rounds_cosines=False,
        full_every=4,
        local_theta=500_000.0,
    ),
    "phi": Architecture(gated_mlp=False, partial_rotary_factor=0.5, all_heads_have_keys=True),
    "phi3": Architecture(
        partial_rotary_factor=1.0,
        all_heads_have_keys=True,
        passes_heads=True,
        only_longrope=True,
        has_own_code=True,
    ),
    "qwen2": Architecture(),
    "qwen3": Architecture(defaults={"head_dim": 128}),
    "qwen3_moe": Architecture(expert_width="moe_intermediate_size", has_dense_layers=True),
    "smollm3": Architecture(defaults={**_TIED, "rope_theta": 2e6, NO_ROPE_INTERVAL: 4}),
    "stablelm": Architecture(partial_rotary_factor=0.25),
}
"""Supported architectures; keys are the `model_type` of config.json."""

_RECURRENT = "softmax attention in every layer; some layers of this model are recurrent or linear"
REASONS = {
    "chatglm": "a model type of transformers, such as glm, to which GLM-4 was converted",
    "cohere2": "RoPE in layers with full attention, which methods extend; this model rotates only"
    " in layers with a sliding window",
    "deepseek_v3": "keys that are cached per head; this model caches a latent (MLA) and rotates a"
    " part of it",
    "falcon": "attention through AttentionInterface; this model's layers compute their own",
    "falcon_mamba": _RECURRENT,
    "gpt2": "RoPE; this model has learned position embeddings",
    "jamba": _RECURRENT,
    "llama4_text": "one attention for all layers; some layers of this model attend inside chunks,"
    " others have no RoPE",
    "mamba": _RECURRENT,
    "mamba2": _RECURRENT,
    "ministral3": "queries that depend on positions through RoPE alone; this model also multiplies"
    " them by a factor that grows with the position",
    "opt": "RoPE; this model has learned position embeddings",
    "qwen3_next": _RECURRENT,
}
"""Why methods cannot extend an architecture: what they need and its `model_type` lacks. Others,
such as OLMo 1 and InternLM3, may satisfy all conditions, but no test compares them with
stock."""
