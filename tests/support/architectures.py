"""A tiny random model of each architecture that `hub_model` takes, also as a folder.

Each has what is peculiar to its kind: fewer key-value heads, heads of another width than
hidden_size over heads, biases, norms of queries and keys, tied embeddings, partial rotary.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, PreTrainedTokenizerFast

from lce_core.evaluation.cross_entropy import Head
from lce_core.extension.extended_model import ExtendedModel
from lce_core.models import MODELS, LanguageModel
from lce_core.models.toy_llama import ToyLlama, byte_tokenizer

VOCABULARY = ToyLlama.shape.vocab_size
TRAINED = 16
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": TRAINED,
    "initializer_range": 0.3,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}
OWN: dict[str, dict[str, Any]] = {
    "cohere": {"attention_bias": True, "logit_scale": 0.25},
    "gemma": {"num_key_value_heads": 1, "head_dim": 12},
    "glm": {"head_dim": 12},
    "glm4": {"head_dim": 8, "attention_bias": True},
    "granite": {
        "attention_multiplier": 0.2,
        "embedding_multiplier": 3.0,
        "logits_scaling": 4.0,
        "residual_multiplier": 0.5,
    },
    "helium": {"head_dim": 8},
    "llama": {"attention_bias": True, "mlp_bias": True},
    "mistral": {"head_dim": 12, "sliding_window": None},
    "mixtral": {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "nemotron": {},
    "olmo2": {},
    "phi": {"num_key_value_heads": 4, "qk_layernorm": True, "hidden_size": 48},
    "phi3": {"original_max_position_embeddings": TRAINED},
    "qwen2": {"tie_word_embeddings": True, "sliding_window": 8, "use_sliding_window": False},
    "qwen3": {"head_dim": 12, "tie_word_embeddings": True},
    "qwen3_moe": {
        "head_dim": 12,
        "num_experts": 5,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 24,
        "mlp_only_layers": [0],
        "norm_topk_prob": True,
    },
    "smollm3": {"no_rope_layer_interval": 2},
    "stablelm": {"hidden_size": 64, "use_qkv_bias": True, "qk_layernorm": True},
}
"""By model type: what differs from `SIZES`."""
OLMO3: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 12,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
"""What a tiny OLMo 3 has besides `SIZES`: layers with a window."""
GEMMA3 = {**OLMO3, "query_pre_attn_scalar": 20}
"""What a tiny Gemma 3 has besides `SIZES`: also heads with a divisor of their own."""
SLIDING = {"gemma3_text": GEMMA3, "olmo3": OLMO3}


def sliding(kind: str, rope: dict[str, Any] | None = None) -> Any:
    """A random fp32 Gemma 3 or OLMo 3 whose full layers have these rotary settings."""
    own = {"rope_type": "default", "rope_theta": 5e4, **(rope or {})}
    local = {"rope_type": "default", "rope_theta": 1e2}
    parameters = {"full_attention": own, "sliding_attention": local}
    return _drawn(kind, {**SIZES, **SLIDING[kind], "rope_parameters": parameters})


GPT_OSS: dict[str, Any] = {
    "num_hidden_layers": 4,
    "head_dim": 12,
    "intermediate_size": 24,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "sliding_window": 5,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
}
"""What a tiny gpt-oss has besides `SIZES`: experts, and layers with a window."""


def gpt_oss(rope: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A random fp32 gpt-oss with these rotary settings and sinks about as high as other scores."""
    parameters = {"rope_type": "default", "rope_theta": 5e4, **(rope or {})}
    return _drawn("gpt_oss", {**SIZES, **GPT_OSS, "rope_parameters": parameters, **changes})


GEMMA2: dict[str, Any] = {
    **OLMO3,
    "query_pre_attn_scalar": 20,
    "attn_logit_softcapping": 2.0,
    "final_logit_softcapping": 3.0,
}
"""What a tiny Gemma 2 has besides `SIZES`: scores and logits far beyond their soft caps."""


def gemma2(rope: dict[str, Any] | None = None, **changes: Any) -> Any:
    """A random fp32 Gemma 2 with these rotary settings, and attention that caps scores."""
    parameters = {"rope_type": "default", "rope_theta": 5e4, **(rope or {})}
    keys = {**SIZES, **GEMMA2, "rope_parameters": parameters, **changes}
    model = _drawn("gemma2", keys)
    model.set_attn_implementation("eager")
    return model


def rotate_full_layers(model: Any, rotary: Any) -> Any:
    """Let the layers with full attention rotate by another rotary module; return the model."""

    def rotated_otherwise(_: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        cosines = rotary(args[0], given["position_ids"])
        return args, {**given, "position_embeddings": cosines}

    kinds = model.config.layer_types
    for kind, layer in zip(kinds, model.model.layers, strict=True):
        if kind == "full_attention":
            layer.register_forward_pre_hook(rotated_otherwise, with_kwargs=True)
    return model


def random_model(model_type: str, **changes: Any) -> Any:
    """A random fp32 model with attention sharp enough that positions matter."""
    rope = {"rope_type": "default", "rope_theta": 5e4, **changes.pop("rope", {})}
    return _drawn(model_type, {**SIZES, **OWN[model_type], "rope_parameters": rope, **changes})


def _drawn(model_type: str, keys: dict[str, Any]) -> Any:
    rope = keys["rope_parameters"]
    if model_type == "phi3":  # its configuration refuses what its rotary module computes
        keys = {**keys, "rope_parameters": {"rope_theta": rope["rope_theta"]}}
    config: Any = AutoConfig.for_model(model_type, **keys)
    config.rope_parameters |= rope
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:  # which start at 0 and 1 and would show nothing
                parameter.data.add_(0.3 * torch.randn(parameter.shape))
            if "sinks" in name:
                parameter.data.copy_(1 + torch.randn(parameter.shape))
    return model.eval()


def in_float64(model: Any) -> Any:
    """The model in float64, with experts in a loop: torch's grouped products lack this dtype."""
    if hasattr(model.config, "num_experts_per_tok"):
        model.set_experts_implementation("eager")
    return model.double()


def save(model_type: str, folder: Path, tokenizer: Any = None, **changes: Any) -> Path:
    """The model in `folder`, as transformers writes it, with the byte tokenizer or another.

    Transformers gives Qwen2 tokenizers an end-of-text token, beyond the vocabulary if need be.
    """
    random_model(model_type, **changes).save_pretrained(folder)
    if tokenizer is None and model_type == "qwen2":
        tokenizer = tokenizer_with(bos=None, eos="<query-0>")
    (tokenizer or byte_tokenizer(ToyLlama.keys)).save_pretrained(folder)
    return folder


def hub_model(folder: Path, **parameters: Any) -> LanguageModel:
    entry = {"name": "hub_model", "label": "tiny", **parameters}
    return MODELS.parse(entry, "test").resolved(folder)


def tokenizer_with(*, bos: str | None, eos: str | None) -> PreTrainedTokenizerFast:
    """The byte tokenizer with two of its key tokens as special ones."""
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_tokenizer(ToyLlama.keys).backend_tokenizer,
        bos_token=bos,
        eos_token=eos,
        clean_up_tokenization_spaces=False,
    )


def in_pieces(
    extended: ExtendedModel, ids: torch.Tensor, cuts: tuple[int, ...] | None
) -> torch.Tensor:
    """Logits over the whole text, or over pieces with stock's cache and with evaluation's."""
    extended.begin_request(ids.shape[1])
    head = Head.of(extended.model)
    if cuts is None:
        return head.logits(extended.hidden_states(ids))
    parts: list[torch.Tensor] = []
    for cache in (DynamicCache(), extended.new_cache(ids.shape[1])):
        edges = [0, *cuts, ids.shape[1]]
        parts.append(
            torch.cat([extended.hidden_states(ids[:, a:b], cache) for a, b in pairwise(edges)], 1)
        )
    torch.testing.assert_close(*parts, rtol=1e-12, atol=1e-12)
    return head.logits(parts[0])
