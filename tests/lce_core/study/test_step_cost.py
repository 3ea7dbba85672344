"""Costs of steps: keys counted one by one from a scheme's definition, FLOPs written by hand."""

from typing import Any, ClassVar

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lce_core.attention.schemes import (
    BlockRetrieval,
    CacheSinks,
    FullCausal,
    GroupedNeighbour,
    GroupedSoftmax,
    LambdaShaped,
    Rectified,
    ShiftedSparse,
)
from lce_core.data.sequences import Answers
from lce_core.methods import METHODS, LayerAttention, Method
from lce_core.models import MODELS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.store.steps import Step
from lce_core.study.cost import decoding_cost, evaluation_cost
from lce_core.study.plan import compile_study
from lce_core.study.step_kinds import step_cost
from lce_core.study.study_file import parse_study

TOY_WEIGHTS = 2 * (4 * 96 * 96 + 3 * 96 * 256) + 96 * 392
"""Of toy_llama: two layers of width 96 with 256 in the MLP, 392 tokens in the vocabulary."""
SIZES = st.integers(1, 40)


def counted(distance: Any, length: int) -> float:
    """Keys at some distance before each query, half of the query's own, mean over queries."""
    seen = sum(
        distance(query, key) is not None for query in range(length) for key in range(query + 1)
    )
    return seen / length - 0.5


@given(window=SIZES, first=SIZES, length=st.integers(1, 150))
def test_keys_are_those_at_a_distance(window, first, length):
    for scheme in (
        FullCausal(),
        GroupedNeighbour(window=window * 2, group=2),
        Rectified(window=window),
        GroupedSoftmax(block=4),
        LambdaShaped(window=window, num_global=first),
        CacheSinks(window=window, num_sinks=first),
    ):
        found = counted(scheme.distance, length)
        assert scheme.mean_keys(length) == pytest.approx(found, abs=0.51), scheme


@given(half=st.integers(1, 16), blocks=st.integers(1, 6))
def test_keys_of_shifted_blocks_are_the_mean_of_both_kinds_of_heads(half, blocks):
    scheme, length = ShiftedSparse(group=2 * half), 2 * half * blocks
    shifted = counted(lambda query, key: scheme.distance(query, key, True), length)
    found = (counted(scheme.distance, length) + shifted) / 2
    assert scheme.mean_keys(length) == pytest.approx(found, abs=1e-9)


def test_keys_of_retrieval_are_chunk_landmarks_and_selected_blocks():
    scheme = BlockRetrieval(block=8, top_k=2, chunk=32)
    found = 0.0
    for query in range(256):
        before = query // 32 * 32
        found += query - before + 0.5 + before // 8 + min(before, 2 * 8)
    assert scheme.mean_keys(256) == pytest.approx(found / 256, rel=0.01)
    assert scheme.mean_keys(32) == 16


def steps(base_model: str, *methods: Any) -> dict[str, list[Step]]:
    study = {
        "study": "costs",
        "hypothesis": "none",
        "target_context": 512,
        "train_tokens": 8192,
        "corpus": "local_text",
        "base_models": [base_model],
        "methods": [*methods],
        "training": {"learning_rate": 1.0e-3, "tokens_per_step": 2048},
        "benchmarks": [{"name": "passkey", "profile": "tiny", "lengths": [256]}],
        "seeds": [0],
    }
    found: dict[str, list[Step]] = {}
    for step in compile_study(parse_study(yaml.safe_dump(study), "costs.yaml"), {}).steps.values():
        found.setdefault(step.kind, []).append(step)
    return found


def test_full_attention_costs_what_it_did_without_a_method():
    planned = steps("toy_llama", "none", {"name": "yarn", "tuned": True})
    for cell in planned["cell"]:
        token = 2 * TOY_WEIGHTS + 2 * 2 * 96 * 256
        assert step_cost(cell).tokens == 120 * 256
        assert step_cost(cell).flops == 120 * 256 * token
    (tuned,) = planned["finetune"]
    assert step_cost(tuned).tokens == 8192
    assert step_cost(tuned).flops == 8192 * 3 * (2 * TOY_WEIGHTS + 2 * 2 * 96 * 512)


def test_longlora_trains_in_blocks_without_gradients_of_kept_weights():
    planned = steps("toy_llama", {"name": "longlora", "tuned": True})
    (tuned,), (cell,) = planned["finetune"], planned["cell"]
    keys = 128 / 2 - 128**2 / (8 * 512)  # four blocks of 512 tokens
    by_hand = 2 * 2 * TOY_WEIGHTS + 3 * 4 * 2 * 96 * keys
    assert step_cost(tuned).flops == pytest.approx(8192 * by_hand)
    full = 2 * TOY_WEIGHTS + 2 * 2 * 96 * 256
    assert step_cost(cell).flops == pytest.approx(120 * 256 * full)


def test_landmark_trains_on_short_sequences_with_landmarks_among_them():
    landmark = {"name": "landmark", "block": 16, "train_length": 128, "top_k": 4, "tuned": True}
    (tuned,) = steps("toy_llama", landmark)["finetune"]
    growth = 16 / 15  # a landmark after every 15 tokens of text
    by_hand = 3 * growth * (2 * TOY_WEIGHTS + 4 * 2 * 96 * (128 * growth / 2))
    assert step_cost(tuned).tokens == 8192
    assert step_cost(tuned).flops == pytest.approx(8192 * by_hand)


LLAMA_WEIGHTS = 32 * (4 * 4096**2 + 3 * 4096 * 11008) + 4096 * 32000
LLAMA_CACHE = 2 * 32 * 4096
"""Numbers that a token keeps in the key-value cache of Llama-2-7B."""


def test_attention_costs_the_mean_over_layers_that_differ():
    class Sliding(Method):
        plugin_name: ClassVar[str] = "sliding"

        def layer(
            self, index: int, geometry: RopeGeometry, lengths: ContextLengths
        ) -> LayerAttention | None:
            scheme = LambdaShaped(window=1024, num_global=1)
            return LayerAttention(RopeTable(geometry.inv_freq()), scheme) if index % 8 else None

    model, none, length = MODELS.load("llama2_7b")(), METHODS.load("none")(), 8192
    full = evaluation_cost(model, none, length, 1, length).flops
    found = evaluation_cost(model, Sliding(), length, 1, length).flops
    window = 512 / 8 + 1024 * 7 / 8  # mean keys in the first 1,024 tokens and in the others
    of_key = 4 * 4096  # per layer: products of a query with a key and of a weight with a value
    saved = 28 * of_key * (length / 2 - window)
    assert full - found == pytest.approx(saved, rel=0.002)  # without the first token
    answers = Answers(1, 2)
    one, other = (
        decoding_cost(model, method, length, answers, length - 1.0, "bf16").flops
        for method in (none, Sliding())
    )
    assert one - other == pytest.approx(28 * of_key * (length - 1024), rel=0.002)


def answered(method: str, answers: Answers, length: float, precision: str = "bf16") -> Any:
    model, extended = MODELS.load("llama2_7b")(), METHODS.parse({"name": method}, "methods[0]")
    return decoding_cost(model, extended, 32768, answers, length, precision)


def test_a_generated_token_reads_all_weights_and_the_cache_of_its_text():
    cost = answered("none", Answers(3, 11), 4096)
    keys = 4096 + 11 / 2  # halfway through the answer
    assert cost.tokens == 33
    assert cost.layer_passes == 3 * 10 * 32  # the prompt's pass gives the first token
    assert cost.bytes == pytest.approx(3 * 10 * 2 * (LLAMA_WEIGHTS + keys * LLAMA_CACHE))
    assert cost.flops == pytest.approx(3 * 10 * (2 * LLAMA_WEIGHTS + 4 * 32 * 4096 * keys))


def test_texts_in_fp32_read_the_weights_together():
    cost = answered("none", Answers(6, 2), 2048, "fp32")  # four fill a micro-batch of 8,192
    keys = 2048 + 1
    assert cost.layer_passes == 2 * 32
    assert cost.bytes == pytest.approx(4 * (2 * LLAMA_WEIGHTS + 6 * keys * LLAMA_CACHE))


def test_a_window_reads_window_and_sinks_however_long_the_text():
    costs = [answered("lm_infinite", Answers(1, 2), length) for length in (16384, 65536)]
    assert costs[0].bytes == pytest.approx(costs[1].bytes)
    window = costs[0].bytes / 2 - LLAMA_WEIGHTS
    assert window / LLAMA_CACHE == pytest.approx(4096 + 10, rel=0.01)
    full = answered("self_extend", Answers(1, 2), 16384)
    assert full.bytes > costs[0].bytes


def test_what_is_asked_for_one_token_decodes_nothing():
    (cell,) = steps("toy_llama", "none")["cell"]
    decoding = step_cost(cell).decoding
    assert (decoding.tokens, decoding.flops, decoding.bytes) == (120, 0, 0)
    assert answered("none", Answers(0, 100), 512).bytes == 0
