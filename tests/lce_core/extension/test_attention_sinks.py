"""gpt-oss against stock transformers' eager attention, and against dense attention."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM

from lce_core.attention import AttentionScheme, registered
from lce_core.attention.cache import RaggedCache
from lce_core.attention.causal import full_causal, shifted_sparse, sliding_window
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.schemes import FullCausal, ShiftedSparse, SlidingWindow
from lce_core.errors import SpecError
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.study.cost import matmul_parameters, stored_parameters
from tests.support.architectures import (
    GPT_OSS,
    TRAINED,
    gpt_oss,
    hub_model,
    in_float64,
    rotate_full_layers,
)
from tests.support.folder_models import (
    TARGET,
    agree,
    causal,
    dense_logits,
    exported,
    logits,
    method,
    saved,
    stock_logits,
    tokens,
    trained,
)
from tests.support.oracles.dense_attention import dense, grouped_distance, lambda_distance

WINDOW = GPT_OSS["sliding_window"]
YARN = {
    "rope_type": "yarn", "factor": 2.0, "beta_fast": 1.0, "beta_slow": 0.01, "truncate": False,
    "original_max_position_embeddings": 8,
}  # fmt: skip
PLAIN: dict[str, Any] = {}
ROPES = {"plain": PLAIN, "yarn": YARN}


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return {
        kind: saved(gpt_oss(rope), tmp_path_factory.mktemp(kind)) for kind, rope in ROPES.items()
    }


def stock(
    rope: dict[str, Any],
    full: dict[str, Any] | None = None,
    change: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Any:
    """Stock gpt-oss; its full layers have other rotary settings, or changed frequencies."""
    model = in_float64(gpt_oss(rope))
    assert model.config._attn_implementation == "eager"
    if full is None and change is None:
        return model
    other = gpt_oss(rope if full is None else full).model.rotary_emb
    if change is not None:
        other.inv_freq = change(other.inv_freq)
    return rotate_full_layers(model, other)


# Pieces and single tokens, both before and beyond the window's end.
CUTS = [None, (3, 4, 5, 6, 7, 17, 18, 19, 30)]
SCALED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}


@pytest.mark.parametrize(
    ("kind", "name", "full"),
    [
        ("plain", "none", None),
        ("yarn", "none", None),
        ("plain", "pi", {"rope_type": "linear", "factor": 4.0}),
        ("plain", "yarn", SCALED),
        ("plain", "abf_single_stage", {"rope_theta": 5e6}),
    ],
)
def test_a_method_changes_the_full_layers_alone(kind, name, full, folders):
    ids = tokens(40)
    expected = stock(ROPES[kind], full)(ids).logits
    for cuts in CUTS:
        agree(logits(folders[kind], method(name), ids, cuts), expected)


def test_a_scaled_model_is_extended_from_its_scaling(folders):
    ids = tokens(40)
    expected = stock(YARN, change=lambda own: own / 4)(ids).logits
    agree(logits(folders["yarn"], method("pi"), ids), expected)


def test_a_model_without_sliding_layers_keeps_its_sinks(tmp_path):
    model, ids = gpt_oss(layer_types=["full_attention"] * 4), tokens(40)
    found = logits(saved(model, tmp_path), method("none"), ids, (3, 4, 17))
    agree(found, in_float64(model)(ids).logits)


@pytest.mark.parametrize("name", ["none", "self_extend"])
def test_texts_of_two_lengths_are_decoded_together(name, folders):
    base, folder = hub_model(folders["yarn"]), folders["yarn"]
    chosen = method(name, window=8, group=4) if name == "self_extend" else method(name)
    model = in_float64(base.load(folder, torch.float64))
    extended = extend(model, base, chosen, target=TARGET)
    extended.begin_request(40)
    texts, caches = [tokens(length)[:1] for length in (30, 20)], []
    for text in texts:
        caches.append(extended.new_cache(40))
        extended.hidden_states(text[:, :-1], caches[-1])
    last = torch.cat([text[:, -1:] for text in texts])
    found = extended.hidden_states(last, RaggedCache(caches))
    expected = torch.cat([extended.hidden_states(text)[:, -1:] for text in texts])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_half_precision_keeps_the_sinks_exact() -> None:
    # Score 21 of each key against a sink of 20.9, which 20.9 / 0.3 in bf16 would miss by 0.05.
    half, sinks = torch.bfloat16, torch.tensor([20.9], dtype=torch.float32)
    query, key = (torch.zeros(1, 1, 9, 8, dtype=half) for _ in range(2))
    query[..., 0], key[..., 0] = 10.0, 7.0
    value, table = torch.ones_like(key), RopeTable(np.zeros(4))
    inputs = AttentionInputs(query, key, value, table, 0, 0.3, sinks=sinks)
    seen = torch.arange(1, 10)
    for found, keys in (
        (full_causal(FullCausal(), inputs), seen),
        (sliding_window(SlidingWindow(3), inputs), seen.clamp(max=3)),
    ):
        share = keys / (keys + np.exp(20.9 - 21.0))
        expected = share[:, None].expand(9, 8)
        torch.testing.assert_close(found[0, 0].float(), expected, rtol=5e-3, atol=0)


def within(query: int, key: int) -> int | None:
    return query - key if 0 <= query - key < WINDOW else None


BASES = [2e4, 2e4, 8e4, 8e4]
SCHEMES = {
    "full_causal": (method("harpe", bases=BASES), causal),
    "self_extend": (method("self_extend", window=8, group=4), grouped_distance(8, 4)),
    "lm_infinite": (method("lm_infinite", window=8, num_global=3), lambda_distance(8, 3)),
    # Distances that the contract tests compare with their definitions.
    "streaming_llm": (method("streaming_llm", window=8, num_sinks=3), None),
    "rerope": (method("rerope", window=8), None),
    "dca": (method("dca", chunk=8, window=3), None),
    "string": (method("string"), None),
    "lampe": (method("lampe"), None),
    "dpe": (method("dpe"), None),
}


@pytest.mark.parametrize("name", SCHEMES)
def test_every_scheme_has_one_softmax_with_the_sink(name, folders, monkeypatch):
    chosen, distance = SCHEMES[name]
    geometry, ids = hub_model(folders["plain"]).geometry, tokens(30)
    lengths = ContextLengths(TRAINED, TARGET, 30)
    scheme = chosen.attention(geometry, lengths) or FullCausal()
    full = chosen.rope_table(geometry, lengths), distance or scheme.distance
    local = RopeTable(geometry.inv_freq()), within
    expected = dense_logits(
        folders["plain"], ids, lambda layer: local if layer.sliding_window else full
    )
    for budget in (registered._TEMPORARIES, 1):  # 1: one group of heads after the other
        monkeypatch.setattr(registered, "_TEMPORARIES", budget)
        for cuts in (None, (3, 4, 17, 18)):
            found = logits(folders["plain"], chosen, ids, cuts)
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@given(
    shared=st.integers(1, 3),
    length=st.integers(1, 20),
    cached=st.integers(0, 19),
    window=st.integers(1, 24),
    height=st.floats(-30, 30),
    training=st.booleans(),
)
def test_kernels_with_sinks_of_any_size_are_those_of_the_definition(
    shared, length, cached, window, height, training
):
    first = 0 if training else min(cached, length - 1)
    generator = torch.Generator().manual_seed(length)
    query = torch.randn(1, 2 * shared, length, 6, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, 1, 2, length, 6, generator=generator, dtype=torch.float64)
    sinks = height + torch.randn(2 * shared, generator=generator, dtype=torch.float64)
    frequencies = np.array([1.0, 0.1, 0.01])
    states = query[:, :, first:], key, value
    inputs = AttentionInputs(*states, RopeTable(frequencies), first, 0.7, sinks=sinks)
    within = SlidingWindow(window)
    for rule, kernel in (
        (causal, partial(full_causal, FullCausal())),
        (within.distance, partial(sliding_window, within)),
    ):
        with torch.set_grad_enabled(training):
            found = kernel(inputs)
        expected = dense(query, key, value, frequencies, rule, 0.7, sinks)[:, :, first:]
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("heads", [(4, 2), (6, 3), (3, 1)])
def test_shifted_blocks_and_their_gradients_have_the_sink(heads):
    scheme, frequencies, length = ShiftedSparse(4), np.array([1.0, 0.1, 0.01]), 12
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        values = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return values.requires_grad_()

    query = drawn(2, heads[0], length, 6)
    key, value = (drawn(2, heads[1], length, 6) for _ in range(2))
    leaves = (query, key, value, drawn(heads[0]))
    with torch.enable_grad():
        inputs = AttentionInputs(
            *leaves[:3], RopeTable(frequencies), 0, 0.7, sinks=leaves[3]
        )  # fmt: skip
        found = shifted_sparse(scheme, inputs)
        repeated = [one.repeat_interleave(heads[0] // heads[1], 1) for one in leaves[1:3]]
        expected = torch.cat(
            [
                dense(
                    query[:, head, None], *(one[:, head, None] for one in repeated), frequencies,
                    scheme.distances_of(0, head, heads[0]), 0.7, leaves[3][head, None],
                )
                for head in range(heads[0])
            ],
            dim=1,
        )  # fmt: skip
        weights = torch.randn(found.shape, generator=generator, dtype=torch.float64)
        ours = torch.autograd.grad((found * weights).sum(), leaves)
        theirs = torch.autograd.grad((expected * weights).sum(), leaves)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


@dataclass(frozen=True)
class Sinkless(FullCausal):
    counts_sinks: ClassVar[bool] = False


class WithoutSinks(type(METHODS.load("none")())):  # type: ignore[misc]
    """A method of others, whose kernel knows no sinks."""

    def attention(self, geometry: Any, lengths: ContextLengths) -> AttentionScheme:
        return Sinkless()


def test_a_scheme_that_ignores_sinks_is_refused(folders):
    base = hub_model(folders["plain"])
    with pytest.raises(SpecError, match="Sinkless, on a model with attention sinks"):
        extend(base.load(folders["plain"], torch.float32), base, WithoutSinks(), target=TARGET)


def test_a_plug_in_that_forgets_the_sliding_layers_is_refused():
    class Plain(LanguageModel):
        geometry = RopeGeometry(12, 12, 4, 2, 5e4, TRAINED)

    with pytest.raises(SpecError, match=r"Plain\.local: got None for a model of type gpt_oss"):
        extend(gpt_oss(), Plain(), method("pi"), target=TARGET)


@pytest.mark.parametrize("name", ["none", "yarn"])
def test_gradients_of_all_weights_equal_those_of_the_stock_model(name, folders):
    base, ids = hub_model(folders["plain"]), tokens(40)
    model = in_float64(base.load(folders["plain"], torch.float64))
    theirs = stock(PLAIN, SCALED if name == "yarn" else None)
    with torch.enable_grad():
        extended = extend(model, base, method(name), target=TARGET, training=True)
        extended.begin_request(40)
        extended.hidden_states(ids).square().sum().backward()
        theirs.model(ids).last_hidden_state.square().sum().backward()
    expected = dict(theirs.model.named_parameters())
    found = dict(model.model.named_parameters())
    assert found.keys() == expected.keys()
    assert sum("sinks" in key for key in expected) == 4
    for key, parameter in expected.items():
        assert parameter.grad.abs().max() > 0, key
        torch.testing.assert_close(found[key].grad, parameter.grad, rtol=1e-3, atol=1e-3)


def test_training_changes_the_sinks_and_writes_a_stock_checkpoint(folders, tmp_path):
    checkpoint, ids = trained(folders["plain"], method("yarn"), tmp_path), tokens(TRAINED)
    after: Any = AutoModelForCausalLM.from_pretrained(checkpoint)
    for layer, before in zip(after.model.layers, gpt_oss().model.layers, strict=True):
        assert (layer.self_attn.sinks - before.self_attn.sinks).abs().max() > 1e-3
    agree(logits(checkpoint, method("none"), ids), stock_logits(checkpoint, ids))


@pytest.mark.parametrize("kind", ROPES)
def test_stock_transformers_computes_what_was_exported(kind, folders, tmp_path):
    ids, out = tokens(TARGET), exported(folders[kind], method("none"), tmp_path / "out")
    agree(logits(folders[kind], method("none"), ids), stock_logits(out, ids))


def test_two_tables_are_not_exported(folders, tmp_path):
    with pytest.raises(SpecError, match="one table for all layers"):
        exported(folders["plain"], method("pi"), tmp_path / "out")


PUBLISHED = {
    "architectures": ["GptOssForCausalLM"],
    "attention_bias": True,
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "max_position_embeddings": 131072,
    "model_type": "gpt_oss",
    "num_attention_heads": 64,
    "num_experts_per_tok": 4,
    "num_hidden_layers": 24,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "rope_scaling": {
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "factor": 32.0,
        "original_max_position_embeddings": 4096,
        "rope_type": "yarn",
        "truncate": False,
    },
    "rope_theta": 150000,
    "sliding_window": 128,
    "tie_word_embeddings": False,
    "vocab_size": 201088,
}
"""config.json of openai/gpt-oss-20b without its quantisation."""


def written(folder: Path, **changes: Any) -> Path:
    config = {key: value for key, value in {**PUBLISHED, **changes}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_the_published_configuration_gives_the_model_its_authors_describe(tmp_path):
    base = hub_model(written(tmp_path))
    geometry, shape = base.geometry, base.shape
    assert shape.local is not None
    assert shape.local == replace(shape.local, layers=tuple(range(0, 24, 2)), window=128)
    assert base.architecture.sinks
    assert all(value in base.note for value in ("(yarn)", "12 of 24 layers", "128-token"))
    # arXiv:2508.10925, table 1: 20.91 B weights, 3.61 B of them active, with the embedding counted
    # once. Biases and norms are no matrix products.
    embedding = 2880 * 201088
    assert stored_parameters(shape, geometry) + embedding == pytest.approx(20.91e9, rel=0.005)
    assert matmul_parameters(shape, geometry) == pytest.approx(3.61e9, rel=0.005)
    theirs: Any = AutoConfig.from_pretrained(tmp_path)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(theirs)
    kinds = [layer.self_attn.sliding_window is not None for layer in model.model.layers]
    assert [index for index, local in enumerate(kinds) if local] == list(shape.local.layers)
    rotary = type(model.model.rotary_emb)(theirs)
    np.testing.assert_allclose(geometry.inv_freq(), rotary.inv_freq.numpy(), rtol=1e-6)
    assert geometry.attention_factor == pytest.approx(rotary.attention_scaling, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"quantization_config": {"quant_method": "mxfp4"}}, "floating point"),
        ({"rope_scaling": ..., "rope_theta": ...}, "scaled RoPE"),
    ],
)
def test_variants_that_are_not_exact_are_refused(changes, words, tmp_path):
    with pytest.raises(SpecError, match=words):
        hub_model(written(tmp_path, **changes))
