"""The cost model against transformers' parameters, torch's counter and the anchors' tables."""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig, LlamaForCausalLM

from lce_core.models import Experts, ModelShape
from lce_core.rope import RopeGeometry
from lce_core.study.cost import (
    attention_flops,
    forward_flops,
    matmul_parameters,
    stored_parameters,
    training_flops,
)

# Reports of Mixtral, arXiv:2401.04088, and Qwen3, arXiv:2505.09388, and the card of Phi-2: billions
# of parameters, and of those that a token uses, embedding and head included.
LLAMA3_8B = (ModelShape(32, 4096, 14336, 128256), RopeGeometry(128, 128, 32, 8, 5e5, 8192))
PUBLISHED = {
    "mixtral_8x7b": (
        ModelShape(32, 4096, 14336, 32000, experts=Experts(8, 2, 14336, 32)),
        RopeGeometry(128, 128, 32, 8, 1e6, 32768),
        (46.7, 12.9),
    ),
    "qwen3_30b_a3b": (
        ModelShape(48, 2048, 6144, 151936, experts=Experts(128, 8, 768, 48)),
        RopeGeometry(128, 128, 32, 4, 1e6, 40960),
        (30.5, 3.3),
    ),
    "phi2": (
        ModelShape(32, 2560, 10240, 51200, gated_mlp=False),
        RopeGeometry(80, 32, 32, 32, 1e4, 2048),
        (2.78, 2.78),
    ),
    "llama3_8b": (*LLAMA3_8B, (8.03, 8.03)),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_all_experts_are_stored_and_the_active_ones_compute(name):
    shape, geometry, published = PUBLISHED[name]
    embedding = shape.vocab_size * shape.hidden_size
    counted = (stored_parameters(shape, geometry), matmul_parameters(shape, geometry))
    billions = [(count + embedding) / 1e9 for count in counted]
    assert billions == pytest.approx(published, abs=0.06)
    assert matmul_parameters(shape, geometry, num_tokens=1000) == counted[0]


def test_utilisation_of_a_published_run_is_the_published_one():
    # torchtitan 2024-12: Llama-3-8B, 8k, compiled, 6,667 tokens/s a GPU: 35 % of 989 TFLOP/s.
    flops = training_flops(*LLAMA3_8B, 8192)
    assert 6667 * flops / 989e12 == pytest.approx(0.35, abs=0.005)


def test_flops_are_those_that_torch_counts_of_a_real_model():
    sizes = {"vocab_size": 61, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 3}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    stock, length = LlamaForCausalLM(LlamaConfig(**sizes, **heads)), 100
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        stock(torch.zeros(1, length, dtype=torch.long))
    shape, geometry = ModelShape(3, 24, 40, 61), RopeGeometry(8, 8, 4, 2, 1e4, 64)
    # That kernel computes the whole square of scores; the model counts what lies before a token.
    above = attention_flops(shape, geometry, length / 2)
    per_token = forward_flops(shape, geometry, length) + above
    assert counter.get_total_flops() == length * per_token
