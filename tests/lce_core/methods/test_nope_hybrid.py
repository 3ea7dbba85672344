"""NoPE hybrid against stock Llama 4, which rotates neighbouring elements of a head in float32."""

from typing import Any

import pytest
import torch
from transformers import Llama4ForCausalLM, Llama4TextConfig

from lce_core.contracts.dense import in_pieces
from lce_core.contracts.tiny_models import TARGET, VOCABULARY, TinyGrouped, logits, stock, tokens
from lce_core.extension.extending import extend
from lce_core.methods import METHODS

BASE = TinyGrouped()
LAYERS = 8


def llama4(weights: dict[str, torch.Tensor], **settings: Any) -> Any:
    """Stock Llama 4 with the weights of a Llama, without experts, norms of queries and chunks."""
    geometry = BASE.geometry
    config = Llama4TextConfig(
        vocab_size=VOCABULARY,
        hidden_size=geometry.num_heads * geometry.head_dim,
        intermediate_size_mlp=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=geometry.num_heads,
        num_key_value_heads=geometry.num_kv_heads,
        head_dim=geometry.head_dim,
        moe_layers=[],
        use_qk_norm=False,
        attention_chunk_size=4 * TARGET,
        rope_parameters={"rope_type": "default", "rope_theta": geometry.theta},
        rms_norm_eps=1e-6,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **settings,
    )
    model = Llama4ForCausalLM(config).double().eval()
    model.set_attn_implementation("eager")
    model.load_state_dict(
        {
            name.replace(".mlp.", ".feed_forward."): _neighbours(name, w)
            for name, w in weights.items()
        }
    )
    return model


def _neighbours(name: str, weight: torch.Tensor) -> torch.Tensor:
    """Place the two elements of each rotated pair beside each other."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    heads = weight.unflatten(0, (-1, 2, BASE.geometry.num_pairs))
    return heads.transpose(1, 2).flatten(0, 2)


@torch.no_grad()
@pytest.mark.parametrize(
    ("parameters", "settings"),
    [
        ({"floor_scale": 6}, {"floor_scale": 6}),
        ({"floor_scale": 5, "attn_scale": 0.4}, {"floor_scale": 5, "attn_scale": 0.4}),
        ({"attn_scale": 0.0}, {"attn_temperature_tuning": False}),
        ({"every": 3, "floor_scale": 1}, {"no_rope_layer_interval": 3, "floor_scale": 1}),
    ],
)
def test_it_equals_stock_llama_4(parameters, settings):
    model = stock(BASE, layers=LAYERS)
    expected = llama4(model.state_dict(), **settings)(tokens(60)).logits
    method = METHODS.parse({"name": "nope_hybrid", **parameters}, "test")
    extended = extend(model, BASE, method, target=TARGET)
    for found in (logits(extended, tokens(60)), in_pieces(extended, tokens(60))):
        torch.testing.assert_close(found, expected, rtol=2e-4, atol=2e-4)
