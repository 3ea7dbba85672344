"""Published weights are taken where they are what the study says, and refused by the key."""

import copy
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st
from transformers import AutoConfig, LlamaConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding
from transformers.models.olmo3.modeling_olmo3 import Olmo3RotaryEmbedding

from flows.settings import STUDIES
from lce_core.errors import DataError, SpecError
from lce_core.evidence import LLAMA2_7B
from lce_core.export.stock_form import stock_form
from lce_core.methods import METHODS
from lce_core.models import MODELS, LocalLayers, weights_digest
from lce_core.rope import RopeGeometry, RopeTable
from lce_core.rope.architectures import Architecture
from lce_core.rope.stated import stated_parameters, stated_table
from lce_core.study.plan import compile_study
from lce_core.study.plan_checks import Data, published_folder, published_weights
from lce_core.study.spec import MethodEntry
from lce_core.study.study_file import parse_study
from tests.support.toy_study import TOY
from tests.support.weights import smallest_weights

LLAMA2 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32001,
    "max_position_embeddings": 4096,
}
"""Llama-2-7B as training code writes it that adds a padding token."""
TOY_CONFIG = {
    "model_type": "llama",
    "hidden_size": 96,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "vocab_size": 392,
    "max_position_embeddings": 128,
}


def study(entry: dict[str, Any], **changes: Any) -> Any:
    methods = [{"checkpoint": "mine", **entry}]
    return parse_study(json.dumps({**TOY, "methods": methods, **changes}), "my.yaml")


def judged(config: dict[str, Any], folder: Path, entry: dict[str, Any]) -> Data:
    """Published weights of Llama-2-7B in the folder, for a study of 32,768 tokens."""
    publish({**LLAMA2, **config}, folder)
    target = entry.get("target_context", 32768)
    rest = {key: value for key, value in entry.items() if key != "target_context"}
    method = METHODS.parse(rest, "test")
    variant = MethodEntry(method=method, label=entry["name"], checkpoint="mine")
    base = MODELS.parse({"name": "llama2_7b"}, "test")
    return published_weights(base, variant, target, {"mine": folder}, "methods[0]")


def publish(config: dict[str, Any], folder: Path, note: str = "") -> Path:
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(smallest_weights(note))
    return folder


YARN_16 = {"type": "yarn", "factor": 16.0, "original_max_position_embeddings": 4096}
LONG = {"type": "longrope", "short_factor": [8.0] * 64, "long_factor": [8.0] * 64}
LINEAR = {"type": "linear", "factor": 8.0}
YARN_8 = {**YARN_16, "factor": 8.0}
CONTEXT_32K = {"max_position_embeddings": 32768}
AS_PUBLISHED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "yarn": (
        {"name": "yarn", "target_context": 65536},
        {"rope_scaling": {**YARN_16, "finetuned": True}, "max_position_embeddings": 65536},
    ),
    "null": ({"name": "pi"}, {"rope_scaling": None}),
    # Layers of unscaled Llama models ignore this key.
    "share": ({"name": "harpe"}, {"partial_rotary_factor": 0.5}),
    "base": ({"name": "abf_single_stage", "base": 5e6}, {"rope_theta": 5e6}),
    "longrope": ({"name": "pi"}, {"rope_scaling": {**LONG, "factor": 8.0, "attention_factor": 1}}),
    "factor-of-contexts": (
        {"name": "yarn"},
        {"rope_scaling": {**YARN_16, "factor": None}, **CONTEXT_32K},
    ),
}


@pytest.mark.parametrize("case", AS_PUBLISHED)
def test_configurations_as_published_are_taken(case, tmp_path):
    entry, config = AS_PUBLISHED[case]
    found = judged(config, tmp_path, entry)
    assert found == Data(weights_digest(tmp_path), None)
    assert published_folder(str(found.digest), {"mine": tmp_path}) == tmp_path


@pytest.mark.parametrize(
    ("method", "scaling", "keys"),
    [
        ("pi", YARN_16, {}),
        ("pi", {**LINEAR, "factor": 4.0}, {}),
        ("yarn", {**YARN_8, "attention_factor": 1.0}, {}),
        ("yarn", YARN_8, {"original_max_position_embeddings": 8192}),
        ("ntk_32k", {"type": "dynamic", "factor": 8.0}, {}),
        ("none", None, {"rope_theta": 5e6}),
        ("harpe", LINEAR, {}),
        ("pi", LONG, {"original_max_position_embeddings": 512}),
    ],
)
def test_a_statement_of_other_frequencies_attention_or_context_is_refused(
    method, scaling, keys, tmp_path
):
    with pytest.raises(SpecError, match="rope_parameters"):
        judged({"rope_scaling": scaling, **keys}, tmp_path, {"name": method})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", 5120),
        ("num_key_value_heads", 8),
        ("vocab_size", 31999),
        ("partial_rotary_factor", 0.5),
    ],
)
def test_another_model_is_refused_by_its_key(key, value, tmp_path):
    with pytest.raises(SpecError, match=rf"config\.json: {key}"):
        judged({key: value, "rope_scaling": LINEAR}, tmp_path, {"name": "pi"})


@pytest.mark.parametrize(
    "scaling",
    [
        {"type": "linear"},
        {"type": "linear", "factor": "8"},
        {"type": "linear", "factor": float("nan")},
        {"type": "yarn", "factor": 0.5},
        {"type": "longrope", "short_factor": [1.0]},
        {"type": ["linear"], "factor": 8.0},
        ["linear"],
    ],
)
def test_a_broken_statement_is_an_error_of_ours(scaling, tmp_path):
    with pytest.raises((SpecError, DataError), match=r"config\.json"):
        judged({"rope_scaling": scaling, "rope_theta": 7.0}, tmp_path, {"name": "pi"})


GEOMETRY = RopeGeometry(16, 16, 4, 4, 10000.0, 64)
"""Small, so that drawn lengths lie on both sides of each context: 8 pairs."""
FACTOR = st.floats(1, 64)
DIVISORS = st.lists(st.floats(1, 64), min_size=8, max_size=8)
CONTEXT = st.sampled_from([32, 64, 96, 256])
"""In tokens; drawn for both contexts of a form, in either order."""
FORMS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "linear": ({"factor": FACTOR}, {"attention_factor": st.floats(0.5, 2)}),
    "dynamic": ({"factor": FACTOR}, {"original_max_position_embeddings": CONTEXT}),
    "llama3": (
        {
            "factor": FACTOR,
            "low_freq_factor": st.floats(0.5, 2),
            "high_freq_factor": st.floats(2.5, 8),
            "original_max_position_embeddings": CONTEXT,
        },
        {},
    ),
    "yarn": (
        {"factor": FACTOR | st.none()},
        {
            "original_max_position_embeddings": CONTEXT,
            "attention_factor": st.floats(0.5, 2) | st.none(),
            "mscale": st.floats(0.1, 2) | st.sampled_from([None, 0.0, 1]),
            "mscale_all_dim": st.floats(0.1, 2) | st.sampled_from([None, 0.0, 1]),
            "beta_fast": st.floats(4, 64) | st.none(),
            "beta_slow": st.floats(0.5, 2) | st.none(),
            "truncate": st.booleans() | st.none(),
        },
    ),
    "proportional": ({"partial_rotary_factor": st.floats(0, 1)}, {"factor": FACTOR}),
    "longrope": (
        {"short_factor": DIVISORS, "long_factor": DIVISORS},
        {
            "factor": FACTOR | st.sampled_from([None, 0.5, 1]),
            "original_max_position_embeddings": CONTEXT,
            "attention_factor": st.floats(0.5, 2) | st.none(),
        },
    ),
}
"""Keys that a form needs, and keys that it may have; some change nothing."""


@st.composite
def configurations(draw: st.DrawFn, form: str) -> dict[str, Any]:
    """A config.json of that form in one of the spellings that exist."""
    needed, optional = FORMS[form]
    scaling = draw(st.fixed_dictionaries(needed, optional=optional))
    scaling[draw(st.sampled_from(["rope_type", "type"]))] = form
    if draw(st.booleans()):
        scaling["rope_theta"] = 20000.0
    config = draw(
        st.fixed_dictionaries(
            {"max_position_embeddings": CONTEXT},
            optional={
                "rope_theta": st.sampled_from([10000.0, 500000]),
                "original_max_position_embeddings": CONTEXT,
            },
        )
    )
    return {**config, draw(st.sampled_from(["rope_scaling", "rope_parameters"])): scaling}


@pytest.mark.parametrize("form", FORMS)
@given(st.data(), st.integers(1, 512))
def test_a_form_means_what_transformers_makes_of_it(form, data, length):
    """Their side reads the same file, and their layer, not their function alone, sees the text."""
    config = data.draw(configurations(form))
    stated = stated_parameters(config, "config.json")
    context = config["max_position_embeddings"]
    trained = stated.get("original_max_position_embeddings", context)
    assume(form != "yarn" or stated["factor"] is not None or context >= trained)
    sizes = {"hidden_size": 64, "num_attention_heads": 4, "head_dim": 16}
    theirs = LlamaRotaryEmbedding(LlamaConfig(**sizes, **copy.deepcopy(config)))
    theirs(torch.zeros(1), torch.tensor([[length - 1]]))
    table = stated_table(stated, GEOMETRY, context, length)
    np.testing.assert_allclose(table.inv_freq, theirs.inv_freq.double().numpy(), rtol=1e-5)
    assert table.attention_factor == pytest.approx(theirs.attention_scaling, rel=1e-6)


ROTARIES = {"gemma3_text": Gemma3RotaryEmbedding, "olmo3": Olmo3RotaryEmbedding}
WHOLE = {"rope_type": "yarn", "factor": 8.0, "rope_theta": 10000.0}
SPLIT = {**WHOLE, "truncate": False}


def same_in_full_layers(table: RopeTable, kind: str, **config: Any) -> None:
    """Compare with stock layers of a model with a RoPE for each kind of layers."""
    sizes = {"hidden_size": 256, "num_attention_heads": 2, "head_dim": 128, "num_hidden_layers": 2}
    theirs: Any = ROTARIES[kind](AutoConfig.for_model(kind, **sizes, **copy.deepcopy(config)))
    expected = theirs.full_attention_inv_freq.double().numpy()
    np.testing.assert_allclose(table.inv_freq, expected, rtol=1e-5)
    assert table.attention_factor == pytest.approx(theirs.full_attention_attention_scaling)


@pytest.mark.parametrize("kind", ROTARIES)
@pytest.mark.parametrize(
    "settings",
    [
        {"rope_scaling": SPLIT},
        {"rope_parameters": {"full_attention": SPLIT}},
        {"rope_parameters": {"full_attention": WHOLE, "truncate": False}},
    ],
)
def test_settings_of_full_layers_mean_what_transformers_makes_of_them(kind, settings):
    config = {**CONTEXT_32K, "original_max_position_embeddings": 512, **settings}
    config["layer_types"] = ["sliding_attention", "full_attention"]
    stated = stated_parameters({"model_type": kind, **config}, "config.json")
    table = stated_table(stated, LLAMA2_7B, 32768, 32768)
    same_in_full_layers(table, kind, **config)


@pytest.mark.parametrize("kind", ROTARIES)
def test_yarn_without_truncation_is_exported_to_full_layers(kind):
    method = METHODS.parse({"name": "yarn", "truncate": False}, "test")
    base: Any = SimpleNamespace(
        geometry=LLAMA2_7B,
        shape=SimpleNamespace(num_layers=2),
        local=LocalLayers((0,), 512, 10000.0),
        architecture=Architecture(),
    )
    form = stock_form(method, base, 32768)
    layers = ["sliding_attention", "full_attention"]
    stated = {"full_attention": {**form.rope_parameters}}
    same_in_full_layers(form.table, kind, **CONTEXT_32K, layer_types=layers, rope_parameters=stated)


def test_rows_of_added_tokens_are_kept(tmp_path):
    base = MODELS.parse({"name": "toy_llama"}, "test")
    model = base.initialise(5)
    model.resize_token_embeddings(393, mean_resizing=False)
    model.save_pretrained(tmp_path)
    loaded = base.load_published(tmp_path, torch.float32)
    assert loaded.get_input_embeddings().weight.shape[0] == 393


def test_cells_move_with_the_weights_and_with_nothing_else(tmp_path):
    def cells(name: str, note: str) -> set[str]:
        folder = publish(TOY_CONFIG, tmp_path, note)
        plan = compile_study(study({"name": "pi", "checkpoint": name}), {}, {name: folder})
        found = {cell.step.fingerprint for cell in plan.cells if cell.step}
        assert found
        return found

    mine = cells("mine", "a")
    assert cells("theirs", "a") == mine
    assert not cells("mine", "b") & mine


def test_methods_that_need_training_may_take_published_weights_and_others_not():
    for name in METHODS.names():
        needs, (example, *_) = METHODS.load(name).training, METHODS.load(name).examples
        if needs == "none":
            with pytest.raises(SpecError, match="at inference only"):
                study({"name": name, **example})
        else:
            (entry,) = study({"name": name, **example}).methods
            assert (entry.name, entry.tuned) == (f"{name}-tuned", False)


RELEASED: dict[str, Any] = yaml.safe_load(
    (STUDIES / "lceg-llama2-7b-released.yaml").read_text(encoding="utf-8")
)
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "pi": {"rope_scaling": LINEAR},
    "ntk_32k": {"rope_scaling": {"type": "dynamic", "factor": 4.0}},
    "yarn": {"rope_scaling": YARN_8, **CONTEXT_32K},
    "longlora": {"rope_scaling": LINEAR},
    "landmark": {"vocab_size": 32002, "landmark_token_id": 32001},
    "ntk_64k": {"rope_scaling": {"type": "dynamic", "factor": 8.0}},
}
"""What LCEG's training code writes into config.json, by method (fine-tune.py, commit 2098947)."""


def test_the_released_study_takes_what_lcegs_code_writes(tmp_path):
    passkeys = {**RELEASED, "benchmarks": [{"name": "passkey", "lengths": [4096]}]}
    del passkeys["expects"]
    wanted = parse_study(json.dumps(passkeys), "released.yaml")
    folders = {}
    for entry in RELEASED["methods"]:
        if name := entry.get("checkpoint"):
            (tmp_path / name).mkdir()
            config = {**LLAMA2, **CONFIGURATIONS[entry["name"]]}
            folders[name] = publish(config, tmp_path / name, name)
    assert len(folders) == 7
    without, with_all = compile_study(wanted, {}), compile_study(wanted, {}, folders)
    absent = [cell.method for cell in without.cells if "--model-folder" in str(cell.unavailable)]
    assert len(absent) == 7
    assert [cell.unavailable for cell in with_all.cells] == [None] * len(RELEASED["methods"])
    assert {step.kind for step in with_all.steps.values()} == {"held_out", "cell"}
    digests = [cell.step.spec.get("published") for cell in with_all.cells if cell.step]
    assert len(set(digests) - {None}) == 7
