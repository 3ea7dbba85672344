"""Gemma 3 and OLMo 3 against stock models with scaled full layers, and dense attention."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from lce_core.errors import SpecError
from lce_core.rope import RopeTable
from lce_core.study.cost import evaluation_cost, forward_flops, matmul_parameters
from tests.support.architectures import GEMMA3, SLIDING, TRAINED, hub_model, sliding
from tests.support.folder_models import (
    TARGET,
    agree,
    dense_logits,
    exported,
    logits,
    method,
    over_schemes,
    saved,
    stock_logits,
    tokens,
)

WINDOW = GEMMA3["sliding_window"]
# Pieces and single tokens, both before and beyond the window's end.
CUTS = [None, (3, 4, 5, 6, 7, 17, 18, 19, 30)]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": TRAINED}


@pytest.fixture(scope="module", params=SLIDING)
def kind(request) -> str:
    return request.param


@pytest.fixture(scope="module")
def folder(kind, tmp_path_factory) -> Path:
    return saved(sliding(kind), tmp_path_factory.mktemp(kind))


@pytest.mark.parametrize(
    ("name", "rope"),
    [
        ("none", {}),
        ("pi", {"rope_type": "linear", "factor": 4.0}),
        ("yarn", YARN),
        ("abf_single_stage", {"rope_theta": 5e6}),
    ],
)
def test_a_method_changes_the_full_layers_as_stock_scaling_does(name, rope, kind, folder):
    ids = tokens(40)
    expected = sliding(kind, rope).double()(ids).logits
    for cuts in CUTS:
        agree(logits(folder, method(name), ids, cuts), expected)


def test_a_scaled_model_is_extended_from_its_scaling(kind, tmp_path):
    folder = saved(sliding(kind, {"rope_type": "linear", "factor": 2.0}), tmp_path)
    ids = tokens(40)
    base = hub_model(folder, trained_context=TRAINED)
    for name, factor in (("none", 2.0), ("pi", 8.0)):
        expected = sliding(kind, {"rope_type": "linear", "factor": factor}).double()(ids).logits
        agree(logits(folder, method(name), ids, base=base), expected)


def within(query: int, key: int) -> int | None:
    return query - key if 0 <= query - key < WINDOW else None


@over_schemes
def test_a_scheme_acts_on_the_full_layers_alone(chosen, distance, folder):
    geometry, ids = hub_model(folder).geometry, tokens(30)
    full = RopeTable(geometry.inv_freq()), distance
    local = RopeTable(replace(geometry, theta=1e2).inv_freq()), within
    expected = dense_logits(folder, ids, lambda layer: local if layer.sliding_window else full)
    for cuts in (None, (3, 4, 17, 18)):
        found = logits(folder, chosen, ids, cuts)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["none", "yarn"])
def test_stock_transformers_computes_what_was_exported(name, folder, tmp_path):
    ids, out = tokens(TARGET), exported(folder, method(name), tmp_path / "out")
    agree(logits(folder, method(name), ids), stock_logits(out, ids))


def test_published_gemmas_are_read_in_old_and_new_form(tmp_path):
    folder = saved(sliding("gemma3_text"), tmp_path / "new")
    written = json.loads((folder / "config.json").read_text())
    older = {key: value for key, value in written.items() if key != "rope_parameters"}
    older |= {"rope_theta": 5e4, "rope_local_base_freq": 1e2, "sliding_window_pattern": 2}
    del older["layer_types"]
    (tmp_path / "config.json").write_text(json.dumps(older))
    assert hub_model(tmp_path).geometry == hub_model(folder).geometry
    shape = hub_model(tmp_path).shape
    assert shape == hub_model(folder).shape
    assert shape.local is not None
    assert (shape.local.layers, shape.local.window, shape.local.theta) == ((0, 2), WINDOW, 1e2)
    (folder / "config.json").write_text(json.dumps(older))
    ids, out = tokens(TARGET), exported(folder, method("pi"), tmp_path / "out")
    agree(logits(folder, method("pi"), ids), stock_logits(out, ids))


def test_the_language_model_of_a_gemma_with_vision_is_extended_and_exported(tmp_path):
    text, ids, scaled = sliding("gemma3_text"), tokens(40), {"rope_type": "linear", "factor": 4.0}
    vision = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1}
    vision |= {"num_attention_heads": 2, "image_size": 16, "patch_size": 8}
    config = Gemma3Config(text_config=text.config, vision_config=vision, mm_tokens_per_image=4)
    both = Gemma3ForConditionalGeneration(config)
    both.model.language_model.load_state_dict(text.model.state_dict())
    folder = saved(both, tmp_path / "model")
    expected = sliding("gemma3_text", scaled).double()(ids).logits
    agree(logits(folder, method("pi"), ids), expected)
    agree(stock_logits(exported(folder, method("pi"), tmp_path / "out"), ids), expected)
    hub_model(folder).load(folder, torch.float32).save_pretrained(tmp_path / "checkpoint")
    agree(stock_logits(tmp_path / "checkpoint", ids), text.double()(ids).logits)


def test_tables_say_which_layers_are_extended_and_costs_count_windows(kind, folder):
    base = hub_model(folder)
    weights = 2 * matmul_parameters(base.shape, base.geometry)
    length, pairs = 40, {True: 40 * 40 / 2, False: WINDOW * WINDOW / 2 + 35 * WINDOW}
    widths = 4 * base.geometry.num_heads * base.geometry.head_dim
    expected = weights + widths * 2 * (pairs[True] + pairs[False]) / length
    assert forward_flops(base.shape, base.geometry, length) == pytest.approx(expected)
    cost = evaluation_cost(base, method("none"), TARGET, 1, length)
    assert cost.flops == pytest.approx(expected)
    linear = (one for one in sliding(kind).modules() if isinstance(one, torch.nn.Linear))
    counted = sum(one.weight.numel() for one in linear)
    assert matmul_parameters(base.shape, base.geometry) == counted


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"final_logit_softcapping": 30.0}, "final_logit_softcapping"),
        ({"layer_types": ["sliding_attention"] * 4}, "full_attention"),
        ({"layer_types": ["full_attention", "chunked_attention"] * 2}, "layer_types"),
        ({"use_bidirectional_attention": True}, "causal attention"),
    ],
)
def test_variants_that_are_not_exact_are_refused(changes, key, folder, tmp_path):
    config = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(SpecError, match=key):
        hub_model(tmp_path)
