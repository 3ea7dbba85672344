"""Stock Llama configuration from a plug-in's geometry and shape.

Only this function writes rotary base, head counts and context into a transformers configuration, so
that models initialised here and models checked by `lce_core.models._stock` agree on the keys.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lce_core.models import ModelShape
from lce_core.rope import RopeGeometry

if TYPE_CHECKING:
    from transformers import LlamaConfig


def llama_config(
    geometry: RopeGeometry,
    shape: ModelShape,
    *,
    initializer_range: float = 0.02,
    rms_norm_eps: float = 1e-5,
    bos: int | None = None,
    eos: int | None = None,
) -> LlamaConfig:
    """Return the configuration of a stock `LlamaForCausalLM` with unscaled rotary embedding."""
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=geometry.num_heads,
        num_key_value_heads=geometry.num_kv_heads,
        head_dim=geometry.head_dim,
        max_position_embeddings=geometry.trained_context,
        rope_parameters={"rope_type": "default", "rope_theta": geometry.theta},
        initializer_range=initializer_range,
        tie_word_embeddings=shape.tied_embeddings,
        rms_norm_eps=rms_norm_eps,
        bos_token_id=bos,
        eos_token_id=eos,
        pad_token_id=None,
    )
