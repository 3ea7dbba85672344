"""Base models with scaled RoPE against stock transformers, its frequencies changed by a formula."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from lce_core.errors import DataError, SpecError
from lce_core.export.folder import export
from lce_core.export.stock_form import Subject
from lce_core.extension.extending import extend
from lce_core.rope import ContextLengths, RopeGeometry, Scaling
from tests.support.architectures import (
    GEMMA3,
    SIZES,
    TRAINED,
    hub_model,
    in_float64,
    in_pieces,
    random_model,
)
from tests.support.architectures import save as save_model
from tests.support.folder_models import (
    TARGET,
    agree,
    exported,
    logits,
    method,
    stock_logits,
    tokens,
)

BEFORE = 8
FACTORS = [1.0, 1.25, 1.5, 2.0]
SCALINGS: dict[str, dict[str, Any]] = {
    "linear": {
        "rope_type": "linear", "factor": 2.0, "original_max_position_embeddings": BEFORE,
    },
    "llama3": {
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 0.05, "high_freq_factor": 0.5,
        "original_max_position_embeddings": BEFORE,
    },
    "yarn": {
        "rope_type": "yarn", "factor": 2.0, "beta_fast": 1.0, "beta_slow": 0.01,
        "original_max_position_embeddings": BEFORE,
    },
    "longrope": {
        "rope_type": "longrope", "short_factor": FACTORS, "long_factor": FACTORS,
        "original_max_position_embeddings": BEFORE, "factor": 2.0,
    },
}  # fmt: skip
over_scalings = pytest.mark.parametrize("kind", SCALINGS)
over_models = pytest.mark.parametrize("model_type", ["llama", "mixtral"])


def saved(model_type: str, rope: dict[str, Any], folder: Path) -> Path:
    return save_model(model_type, folder, rope=rope, head_dim=8)


def stock(model_type: str, rope: dict[str, Any]) -> Any:
    return in_float64(random_model(model_type, rope=rope, head_dim=8))


@over_models
@over_scalings
def test_without_a_method_a_scaled_model_is_the_stock_model(model_type, kind, tmp_path):
    folder = saved(model_type, SCALINGS[kind], tmp_path)
    base, ids = hub_model(folder), tokens(40)
    assert base.geometry.trained_context == TRAINED
    assert base.geometry.scaling is not None
    expected = stock(model_type, SCALINGS[kind])(ids).logits
    for cuts in (None, (5, 6, 20)):
        agree(logits(folder, method("none"), ids, cuts), expected)
    plain = stock(model_type, {})(ids).logits
    assert (plain - expected).abs().max() > 1e-2


@pytest.mark.parametrize(
    ("model_type", "kind"),
    [("phi3", "longrope"), ("glm", "yarn"), ("glm4", "longrope"), ("nemotron", "yarn")],
)
def test_an_attention_factor_of_rotated_elements_leaves_the_others_as_they_are(
    model_type, kind, tmp_path
):
    sizes: dict[str, Any] = {"hidden_size": 64, "head_dim": 16, "partial_rotary_factor": 0.5}
    sizes |= {"original_max_position_embeddings": BEFORE} if model_type == "phi3" else {}
    rope, ids = SCALINGS[kind] | {"partial_rotary_factor": 0.5}, tokens(40)
    folder = save_model(model_type, tmp_path / "model", rope=rope, **sizes)
    assert hub_model(folder).geometry.attention_factor > 1.0
    stock = in_float64(random_model(model_type, rope=rope, **sizes))
    for cuts in (None, (5, 6, 20)):
        agree(logits(folder, method("none"), ids, cuts), stock(ids).logits)
    within = ids[:, :8]  # the window of the scheme holds the whole text
    found = logits(folder, method("self_extend", window=8, group=4), within, (3, 4))
    agree(found, stock(within).logits)
    out = exported(folder, method("pi"), tmp_path / "out")
    agree(logits(folder, method("pi"), ids), stock_logits(out, ids))


@pytest.mark.parametrize("kind", ["linear", "yarn"])
@pytest.mark.parametrize("name", ["pi", "ntk_aware", "yarn"])
def test_extending_within_the_context_that_a_file_was_scaled_to_changes_nothing(
    kind, name, tmp_path
):
    # As Qwen's model cards say: the factor is added, max_position_embeddings stays.
    rope = SCALINGS[kind] | {"factor": TARGET / TRAINED}
    rope["original_max_position_embeddings"] = TRAINED
    folder, ids = saved("llama", rope, tmp_path), tokens(TARGET)
    agree(logits(folder, method(name), ids), stock("llama", rope)(ids).logits)


PLAIN, TWICE = {"rope_type": "default", "rope_theta": 5e4}, {"rope_type": "linear", "factor": 2.0}
BOTH: dict[str, tuple[str, dict[str, Any]]] = {
    "scaling over plain settings": (
        "llama", {"rope_parameters": PLAIN, "rope_scaling": TWICE, "rope_theta": 5e4},
    ),
    "equal settings": (
        "qwen3", {"rope_parameters": PLAIN | TWICE, "rope_scaling": PLAIN | TWICE},
    ),
    "theta only in rope_scaling": (
        "llama", {"rope_parameters": {"rope_type": "default"}, "rope_scaling": PLAIN | TWICE},
    ),
    "an empty rope_scaling": ("llama", {"rope_parameters": PLAIN, "rope_scaling": {}}),
    "partial settings of Gemma 3": (
        "gemma3_text",
        {
            "rope_parameters": {"full_attention": PLAIN, "sliding_attention": {"rope_theta": 1e2}},
            "rope_scaling": {"rope_type": "linear", "factor": 2.0},
        },
    ),
    "only rope_scaling of Gemma 3": (
        "gemma3_text", {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BOTH)
def test_a_file_with_both_keys_is_read_as_transformers_reads_it(case, tmp_path):
    model_type, keys = BOTH[case]
    own = GEMMA3 if model_type == "gemma3_text" else {"head_dim": 8}
    written = {"model_type": model_type, **SIZES, **own, **keys}
    (tmp_path / "config.json").write_text(json.dumps(written))
    with torch.device("meta"):
        theirs: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tmp_path))
    rotary = dict(type(theirs.model.rotary_emb)(theirs.config).named_buffers())
    frequencies = rotary.get("full_attention_inv_freq", rotary.get("inv_freq"))
    ours = hub_model(tmp_path, trained_context=TRAINED).geometry
    np.testing.assert_allclose(ours.inv_freq(), frequencies.double().numpy(), rtol=1e-5)


@pytest.mark.parametrize(
    "keys",
    [
        {"rope_parameters": PLAIN, "rope_scaling": TWICE},  # transformers would take theta 10,000
        {"rope_parameters": SCALINGS["yarn"], "rope_scaling": TWICE},
        {"model_type": "gemma3_text", "rope_parameters": PLAIN | TWICE, **GEMMA3},
    ],
)
def test_settings_that_transformers_ignores_are_refused(keys, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SIZES, **keys}))
    with pytest.raises(SpecError, match=r"which transformers ignores; it computes with"):
        hub_model(tmp_path)


def pi(own: torch.Tensor, trained: int) -> torch.Tensor:
    return own / (TARGET / trained)


def ntk(own: torch.Tensor, trained: int) -> torch.Tensor:
    pairs = torch.arange(len(own)) / (len(own) - 1)
    return own * (TARGET / trained) ** -pairs


def by_parts(own: torch.Tensor, trained: int) -> torch.Tensor:
    turns = trained * own / math.tau
    kept = ((turns - 0.05) / (0.5 - 0.05)).clamp(0, 1)
    return kept * own + (1 - kept) * own / (TARGET / trained)


def another_base(own: torch.Tensor, trained: int) -> torch.Tensor:
    exponents = torch.arange(len(own), dtype=torch.float64) / len(own)
    return own * (5e6 / 5e4) ** -exponents


@over_scalings
@pytest.mark.parametrize(
    ("chosen", "formula"),
    [
        (method("pi"), pi),
        (method("ntk_aware"), ntk),
        (method("ntk_by_parts", beta_fast=0.5, beta_slow=0.05), by_parts),
        (method("abf_single_stage"), another_base),
    ],
    ids=["pi", "ntk_aware", "ntk_by_parts", "abf_single_stage"],
)
def test_a_method_changes_the_frequencies_of_the_scaled_model(kind, chosen, formula, tmp_path):
    folder = saved("llama", SCALINGS[kind], tmp_path)
    model, ids = stock("llama", SCALINGS[kind]), tokens(40)
    # Transformers computes LongRoPE's frequencies anew in every pass.
    model.config.rope_parameters["rope_type"] = model.model.rotary_emb.rope_type = "default"
    rotary = model.model.rotary_emb
    rotary.inv_freq = formula(rotary.inv_freq.double(), TRAINED)
    agree(logits(folder, chosen, ids, (9, 30)), model(ids).logits)


def test_yarn_on_a_linearly_scaled_model_counts_rotations_of_its_frequencies():
    plain = RopeGeometry(64, 64, 4, 2, 5e4, 4 * 4096)
    scaled = RopeGeometry(64, 64, 4, 2, 5e4, 4 * 4096, Scaling("linear", (0.25,) * 32))
    lengths = ContextLengths(4 * 4096, 16 * 4096, 100)
    found = method("yarn").rope_table(scaled, lengths)
    # Positions that are four times as dense turn as those of a model of a quarter of the context.
    quarter = RopeGeometry(64, 64, 4, 2, 5e4, 4096)
    expected = method("yarn").rope_table(quarter, ContextLengths(4096, 4 * 4096, 100))
    np.testing.assert_allclose(found.inv_freq, expected.inv_freq / 4, rtol=1e-12)
    assert found.attention_factor == expected.attention_factor
    assert not np.allclose(found.inv_freq, method("yarn").rope_table(plain, lengths).inv_freq / 4)


@pytest.mark.parametrize(
    ("kind", "name"), [("llama3", "yarn"), ("yarn", "none"), ("yarn", "yarn"), ("longrope", "none")]
)
def test_stock_transformers_computes_what_was_exported(kind, name, tmp_path):
    folder = saved("llama", SCALINGS[kind], tmp_path / "model")
    chosen = method(name, **({"beta_fast": 1.0, "beta_slow": 0.1} if name == "yarn" else {}))
    ids, out = tokens(TARGET), exported(folder, chosen, tmp_path / "out")
    agree(logits(folder, chosen, ids), stock_logits(out, ids))


@pytest.mark.parametrize(("name", "original"), [("yarn", None), ("llama3", TRAINED)])
def test_the_original_context_of_the_base_models_file_is_not_exported(name, original, tmp_path):
    folder = saved("llama", {}, tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    config["original_max_position_embeddings"] = BEFORE
    (folder / "config.json").write_text(json.dumps(config))
    base, chosen = (
        hub_model(folder, trained_context=TRAINED),
        method(name, beta_fast=1.0, beta_slow=0.1),
    )
    export(Subject("study", "variant", base, chosen, TARGET, folder), out := tmp_path / "out")
    written = json.loads((out / "config.json").read_text())
    assert written.get("original_max_position_embeddings") == original
    ids = tokens(TARGET)
    agree(logits(folder, chosen, ids, base=base), stock_logits(out, ids))


TWO_TABLES = SCALINGS["longrope"] | {"long_factor": [2.0, 3.0, 4.0, 8.0]}


def test_longrope_with_two_tables_needs_the_context_and_uses_its_table(tmp_path):
    folder = saved("llama", TWO_TABLES, tmp_path)
    with pytest.raises(SpecError, match=r"`trained_context`: 8 extends .* with short_factor, 16"):
        hub_model(folder)
    for context, lengths in ((BEFORE, (5, BEFORE)), (TRAINED, (BEFORE + 1, 40))):
        base = hub_model(folder, trained_context=context)
        assert base.geometry.trained_context == context
        for length in lengths:
            expected = stock("llama", TWO_TABLES)(tokens(length)).logits
            agree(logits(folder, method("none"), tokens(length), base=base), expected)


def changed(folder: Path, **keys: Any) -> Path:
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"] |= keys
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_scalings_that_no_method_can_extend_are_refused_with_the_reason(tmp_path):
    dynamic = saved("llama", {"rope_type": "dynamic", "factor": 2.0}, tmp_path / "dynamic")
    with pytest.raises(SpecError, match="same for every text"):
        hub_model(dynamic)
    partial = save_model("stablelm", tmp_path / "partial", rope=SCALINGS["yarn"])
    with pytest.raises(SpecError, match="rotated elements"):
        hub_model(partial)
    torn = changed(saved("llama", SCALINGS["llama3"], tmp_path / "torn"), low_freq_factor="x")
    with pytest.raises(DataError, match="low_freq_factor"):
        hub_model(torn)


def test_the_scaling_is_part_of_the_identity_and_is_compared_with_the_folder(tmp_path):
    folder = saved("llama", SCALINGS["llama3"], tmp_path)
    base = hub_model(folder)
    assert type(base).from_identity(base.identity()).geometry == base.geometry
    changed(folder, factor=8.0)
    assert hub_model(folder).identity() != base.identity()
    with pytest.raises(SpecError, match="scaling: "):
        base.load(folder, torch.float32)


def test_published_weights_of_a_scaled_model_are_rotated_as_it_is(tmp_path):
    folder = saved("llama", SCALINGS["llama3"], tmp_path)
    base, ids = hub_model(folder), tokens(40)
    extended = extend(
        base.load_published(folder, torch.float64), base, method("none"), target=TARGET
    )
    agree(in_pieces(extended, ids, None), stock("llama", SCALINGS["llama3"])(ids).logits)
