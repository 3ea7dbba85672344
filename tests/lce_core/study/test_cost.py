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
    model_flops_utilisation,
    stored_parameters,
    training_flops,
)
from lce_core.study.pricing.device_types import DEVICE_TYPES
from lce_core.study.pricing.speed import from_data_sheet
from lce_core.study.step_cost import StepCost

MODELS = {
    "llama2_7b": (ModelShape(32, 4096, 11008, 32000), RopeGeometry(128, 128, 32, 32, 1e4, 4096)),
    "llama3_8b": (ModelShape(32, 4096, 14336, 128256), RopeGeometry(128, 128, 32, 8, 5e5, 8192)),
    "phi2": (
        ModelShape(32, 2560, 10240, 51200, gated_mlp=False),
        RopeGeometry(80, 32, 32, 32, 1e4, 2048),
    ),
}
# Billions of parameters in products; GFLOP per training token at 4k, 8k, ..., 128k. 51.5 at 8k is
# also what Megatron-Bridge's published 744 TFLOP/s at 14,451 tokens/s for Llama-3-8B amount to.
TRAINING = {
    "llama2_7b": (6.607, (42.9, 46.1, 52.5, 65.4, 91.2, 142.7)),
    "llama3_8b": (7.505, (48.2, 51.5, 57.9, 70.8, 96.6, 148.1)),
    "phi2": (2.648, (17.9, 19.9, 23.9, 32.0, 48.1, 80.3)),
}


# Mixtral's report, arXiv:2401.04088: 47 B parameters, 13 B of them active. Qwen3's report,
# arXiv:2505.09388: 30.5 B, 3.3 B active, embedding and head included.
MIXTURES = {
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
}


@pytest.mark.parametrize("name", MIXTURES)
def test_all_experts_are_stored_and_the_active_ones_compute(name):
    shape, geometry, published = MIXTURES[name]
    embedding = shape.vocab_size * shape.hidden_size
    counted = (stored_parameters(shape, geometry), matmul_parameters(shape, geometry))
    billions = [(count + embedding) / 1e9 for count in counted]
    assert billions == pytest.approx(published, abs=0.06)
    assert matmul_parameters(shape, geometry, num_tokens=1000) == counted[0]


@pytest.mark.parametrize("name", MODELS)
def test_parameters_and_training_flops_are_those_of_published_models(name):
    billions, table = TRAINING[name]
    assert matmul_parameters(*MODELS[name]) / 1e9 == pytest.approx(billions, abs=6e-4)
    found = [training_flops(*MODELS[name], 4096 << step) / 1e9 for step in range(6)]
    assert found == pytest.approx(table, abs=0.06)


def test_prefill_reproduces_the_table_of_evaluation_cost():
    shape, geometry = MODELS["llama2_7b"]
    tera = [forward_flops(shape, geometry, n) * n / 1e12 for n in (4096, 8192, 16384, 32768, 65536)]
    assert tera == pytest.approx([58.5, 126, 287, 714, 1992], rel=0.01)
    a100 = from_data_sheet(DEVICE_TYPES["a100"]).evaluation
    assert a100.seconds(StepCost(flops=tera[3] * 1e12)) == pytest.approx(4.8, abs=0.05)


def test_utilisation_of_a_published_run_is_the_published_one():
    # torchtitan 2024-12: Llama-3-8B, 8k, compiled, 6,667 tokens/s a GPU: 35 % of 989 TFLOP/s.
    flops = training_flops(*MODELS["llama3_8b"], 8192)
    assert model_flops_utilisation(6667, flops) == pytest.approx(0.35, abs=0.005)


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
