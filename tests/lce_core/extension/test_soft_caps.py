"""Gemma 2 against stock transformers' eager attention, the only one that caps scores."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from lce_core.attention import causal
from lce_core.errors import SpecError
from lce_core.evaluation.decoding import finite_logits
from lce_core.extension.extending import extend
from lce_core.training.assembly import LossModel
from tests.support.architectures import (
    GEMMA2,
    TRAINED,
    gemma2,
    gpt_oss,
    hub_model,
    in_float64,
    rotate_full_layers,
)
from tests.support.folder_models import TARGET, agree, logits, method, saved, tokens, trained

SCALED = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return saved(gemma2(), tmp_path_factory.mktemp("gemma2"))


def stock(full: dict[str, Any] | None = None) -> Any:
    """Stock Gemma 2 whose layers with full attention have other rotary settings."""
    return rotate_full_layers(in_float64(gemma2()), gemma2(full).model.rotary_emb)


@pytest.mark.parametrize("scores", [causal._CAPPED_SCORES, 300])
@pytest.mark.parametrize(
    ("name", "full"),
    [("none", None), ("pi", {"rope_type": "linear", "factor": 4.0}), ("yarn", SCALED)],
)
def test_a_method_changes_the_full_layers_alone(name, full, scores, folder, monkeypatch):
    monkeypatch.setattr(causal, "_CAPPED_SCORES", scores)  # 300: a few queries at a time
    ids = tokens(40)
    expected = stock(full)(ids).logits
    for cuts in (None, (3, 4, 5, 6, 7, 17, 18, 19, 30)):
        agree(logits(folder, method(name), ids, cuts), expected)
    # Both caps matter: without them the model is another one.
    for key in ("attn_logit_softcapping", "final_logit_softcapping"):
        other = in_float64(gemma2(**{key: None}))
        assert (other(ids).logits - stock()(ids).logits).abs().max() > 0.1


def test_decoding_and_losses_see_capped_logits(folder):
    base, ids = hub_model(folder), tokens(30)
    extended = extend(in_float64(base.load(folder, torch.float64)), base, method("none"), target=64)
    extended.begin_request(30)
    found = finite_logits(extended, extended.hidden_states(ids)[0], "here")
    expected = stock()(ids).logits
    torch.testing.assert_close(found, expected[0].float(), rtol=1e-4, atol=1e-4)
    assert GEMMA2["final_logit_softcapping"] * 0.9 < found.abs().max() <= 3


@pytest.mark.parametrize("name", ["none", "yarn"])
def test_the_loss_and_its_gradients_equal_those_of_the_stock_model(name, folder):
    base, ids = hub_model(folder), tokens(40)
    model = in_float64(base.load(folder, torch.float64))
    theirs = stock(SCALED if name == "yarn" else None)
    with torch.enable_grad():
        extended = extend(model, base, method(name), target=TARGET, training=True)
        extended.begin_request(40)
        loss = LossModel(model, "fp32")(ids, torch.ones(ids.shape, dtype=torch.float64))
        loss.backward()
        predicted = theirs(ids).logits[:, :-1].log_softmax(-1)
        stock_loss = -predicted.gather(-1, ids[:, 1:, None]).sum()
        stock_loss.backward()
    torch.testing.assert_close(loss, stock_loss, rtol=1e-5, atol=0)
    expected = dict(theirs.named_parameters())
    for key, parameter in model.named_parameters():
        assert expected[key].grad.abs().max() > 0, key
        torch.testing.assert_close(parameter.grad, expected[key].grad, rtol=1e-3, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("make", [gemma2, gpt_oss])
def test_processes_share_a_model_that_has_no_sdpa(make, tmp_path):
    folder = saved(make(), tmp_path / "model")
    alone = trained(folder, method("yarn"), tmp_path / "alone")
    shared = trained(folder, method("yarn"), tmp_path / "shared", processes=2, sharding="shard")
    expected, found = (load_file(one / "model.safetensors") for one in (alone, shared))
    assert found.keys() == expected.keys()
    for key, weight in expected.items():
        torch.testing.assert_close(found[key], weight, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["self_extend", "lm_infinite", "longlora"])
def test_a_scheme_without_capped_scores_is_refused(name, folder):
    base = hub_model(folder)
    model = base.load(folder, torch.float32)
    with pytest.raises(SpecError, match="on a model with softly capped scores"):
        extend(model, base, method(name), target=TARGET, training=name == "longlora")


def test_facts_of_a_published_file(tmp_path):
    # gemma-2-2b's config.json names neither layer_types nor tied embeddings.
    (tmp_path / "config.json").write_text(PUBLISHED)
    base = hub_model(tmp_path)
    assert base.local is not None
    assert base.local.layers == tuple(range(0, 26, 2))
    assert (base.local.window, base.local.theta, base.shape.tied_embeddings) == (4096, None, True)
    assert base.geometry.trained_context == 8192
    assert base.architecture.needs_begin


PUBLISHED = """{
  "architectures": ["Gemma2ForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
  "attn_logit_softcapping": 50.0, "bos_token_id": 2, "cache_implementation": "hybrid",
  "eos_token_id": 1, "final_logit_softcapping": 30.0, "head_dim": 256,
  "hidden_act": "gelu_pytorch_tanh", "hidden_activation": "gelu_pytorch_tanh",
  "hidden_size": 2304, "initializer_range": 0.02, "intermediate_size": 9216,
  "max_position_embeddings": 8192, "model_type": "gemma2", "num_attention_heads": 8,
  "num_hidden_layers": 26, "num_key_value_heads": 4, "pad_token_id": 0,
  "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
  "sliding_window": 4096, "torch_dtype": "float32", "transformers_version": "4.42.4",
  "use_cache": true, "vocab_size": 256000
}"""
