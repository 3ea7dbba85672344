"""Base models against transformers' own classes, and checkpoints that are damaged or foreign."""

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.models import MODELS, ModelShape
from lce_core.models._stock import Llama, Phi, StockModel
from lce_core.models.toy_llama import ANSWER_WEIGHT, ToyLlama, plant_keys
from lce_core.rope import RopeGeometry

KEYS = ToyLlama.keys


class TinyLlama(Llama):
    plugin_name: ClassVar[str] = "tiny_llama"
    geometry: ClassVar[RopeGeometry] = RopeGeometry(8, 8, 4, 4, 10000.0, 64)
    shape: ClassVar[ModelShape] = ModelShape(2, 32, 48, 100)


class TinyGroupedLlama(TinyLlama):
    plugin_name: ClassVar[str] = "tiny_grouped_llama"
    geometry: ClassVar[RopeGeometry] = RopeGeometry(8, 8, 4, 2, 500000.0, 64)


class TinyPhi(Phi):
    plugin_name: ClassVar[str] = "tiny_phi"
    geometry: ClassVar[RopeGeometry] = RopeGeometry(10, 4, 4, 4, 10000.0, 64)
    shape: ClassVar[ModelShape] = ModelShape(2, 40, 48, 100, gated_mlp=False)


NAMES = [name for name in MODELS.names() if not MODELS.load(name).reads_config]
"""Models whose plug-in says all; test_hub_model.py has the others."""
TINY = (TinyLlama, TinyGroupedLlama, TinyPhi)


def registered(name: str) -> StockModel:
    model = MODELS.parse({"name": name}, "test")
    assert isinstance(model, StockModel)
    return model


def save(model: StockModel, folder: Path, **changes: Any) -> Path:
    """A random checkpoint of `model` in `folder`, with keys of config.json changed."""
    model.initialise(0).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | changes))
    return folder


@pytest.mark.parametrize("model", [*map(registered, NAMES), *(tiny() for tiny in TINY)])
def test_geometry_and_transformers_rotate_alike(model):
    config = model.config()
    with torch.device("meta"):
        built = AutoModelForCausalLM.from_config(config)
    rotary = type(built.model.rotary_emb)(config)
    # Gemma 3 has one table for each kind of layers.
    found = rotary.inv_freq if model.local is None else rotary.full_attention_inv_freq
    np.testing.assert_allclose(found.numpy(), model.geometry.inv_freq(), rtol=1e-6)
    attention = built.model.layers[0].self_attn
    assert attention.q_proj.out_features == model.geometry.num_heads * model.geometry.head_dim
    assert attention.k_proj.out_features == model.geometry.num_kv_heads * model.geometry.head_dim


def test_key_and_query_tokens_have_their_ids_after_saving(tmp_path):
    ToyLlama().tokenizer(None).save_pretrained(tmp_path)
    for tokenizer in (AutoTokenizer.from_pretrained(tmp_path), ToyLlama().tokenizer(tmp_path)):
        assert len(tokenizer) == ToyLlama.shape.vocab_size
        ids = tokenizer("a<key-3-07>\u20ac<query-3>")["input_ids"]
        key = KEYS.first_key + 3 * KEYS.members + 7
        assert ids == [97, key, 0xE2, 0x82, 0xAC, KEYS.first_query + 3]
        assert tokenizer.decode(ids) == "a<key-3-07>\u20ac<query-3>"


def test_a_seed_fixes_the_weights_and_leaves_the_callers_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first, second, other = (ToyLlama().initialise(seed) for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    for name, weight in first.state_dict().items():
        assert weight.dtype == torch.float32
        assert torch.equal(weight, second.state_dict()[name])
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)
    assert first.lm_head.weight is first.model.embed_tokens.weight


@pytest.mark.parametrize("tiny", [TinyGroupedLlama, TinyPhi, ToyLlama])
def test_a_saved_checkpoint_loads_with_equal_weights(tiny, tmp_path):
    model = tiny()
    saved = model.initialise(0)
    saved.save_pretrained(tmp_path)
    loaded = model.load(tmp_path, torch.float32)
    for name, weight in saved.state_dict().items():
        assert torch.equal(weight, loaded.state_dict()[name]), name
    assert not loaded.training
    assert loaded.config._attn_implementation == "sdpa"
    assert model.load(tmp_path, torch.bfloat16).dtype == torch.bfloat16


ROPE = {"rope_type": "default", "rope_theta": 10000.0, "factor": 4.0}


@pytest.mark.parametrize(
    ("tiny", "changes", "key"),
    [
        (TinyLlama, {"max_position_embeddings": 128}, "max_position_embeddings"),
        (TinyLlama, {"num_attention_heads": 2, "head_dim": 16}, "num_attention_heads"),
        (TinyLlama, {"rope_parameters": {**ROPE, "rope_theta": 5e5}}, "rope_theta"),
        (TinyLlama, {"rope_parameters": None, "rope_theta": 5e5}, "rope_theta"),
        (TinyLlama, {"rope_parameters": {**ROPE, "rope_type": "linear"}}, "rope_type"),
        (TinyPhi, {"rope_parameters": {**ROPE, "partial_rotary_factor": 0.8}}, "partial_rotary"),
        (TinyPhi, {"model_type": "llama"}, "model_type"),
    ],
)
def test_a_folder_of_another_geometry_is_refused_by_key(tiny, changes, key, tmp_path):
    model = tiny()
    save(model, tmp_path, **changes)
    with pytest.raises(SpecError, match=rf"config\.json: {key}.*: .*{model.plugin_name}"):
        model.load(tmp_path, torch.float32)


def test_a_folder_without_a_model_says_how_to_name_another(tmp_path):
    with pytest.raises(UnavailableError, match="--model-folder tiny_llama="):
        TinyLlama().load(tmp_path / "absent", torch.float32)
    with pytest.raises(UnavailableError, match="run the study, or name its folder"):
        registered("toy_llama").load(None, torch.float32)
    with pytest.raises(DataError, match="no readable tokenizer"):
        TinyLlama().tokenizer(tmp_path)


def test_weights_that_are_absent_cut_short_or_pickled_are_refused(tmp_path):
    file = save(TinyLlama(), tmp_path) / "model.safetensors"
    weights = load_file(file)
    del weights["model.layers.1.mlp.up_proj.weight"]
    save_file(weights, file, metadata={"format": "pt"})
    # They are not replaced by random ones.
    with pytest.raises(DataError, match=r"without 1 of .*first .*layers\.1\.mlp\.up_proj"):
        TinyLlama().load(tmp_path, torch.float32)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(DataError, match="no readable safetensors weights"):
        TinyLlama().load(tmp_path, torch.float32)
    TinyLlama().initialise(0).save_pretrained(tmp_path)
    file.rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="no readable safetensors weights"):
        TinyLlama().load(tmp_path, torch.float32)
    (tmp_path / "config.json").write_text('{"model_type": ')
    with pytest.raises(DataError, match=r"config\.json: got no readable model configuration"):
        TinyLlama().load(tmp_path, torch.float32)


@given(
    length=st.sampled_from([10, 24, 47, 128, 512]),  # the first is too short for a key
    num_rows=st.integers(1, 4),
    seed=st.integers(0, 2**32),
)
def test_every_query_is_answered_by_the_key_before_it(length, num_rows, seed):
    rng = np.random.default_rng(seed)
    text = rng.integers(256, size=(num_rows, length)).astype(np.uint32)
    rows, weights = plant_keys(text, KEYS, rng)
    assert rows.shape == weights.shape == text.shape
    assert rows.dtype == np.uint32
    for row, weight, before in zip(rows, weights, text, strict=True):
        check_row(row, weight, before)


def check_row(row: np.ndarray, weight: np.ndarray, text: np.ndarray) -> None:
    keys, kept = KEYS, row[row < KEYS.first_key]
    assert np.array_equal(kept, text[: len(kept)])  # the text is intact and in order
    queries = np.flatnonzero(row >= keys.first_query)
    assert len(queries) == min(keys.families, len(row) // 24)
    assert len(kept) == len(row) - 3 * len(queries)
    assert np.array_equal(np.flatnonzero(weight == ANSWER_WEIGHT), queries + 1)
    assert set(weight.tolist()) <= {1, ANSWER_WEIGHT}
    for place in queries:
        family = row[place] - keys.first_query
        first = keys.first_key + family * keys.members
        seen = row[:place][(row[:place] >= first) & (row[:place] < first + keys.members)]
        assert len(seen) == 1
        assert row[place + 1] == seen[0]


def test_distances_from_key_to_query_reach_the_whole_row():
    rng, length = np.random.default_rng(0), 512
    rows, _ = plant_keys(np.zeros((400, length), dtype=np.uint32), KEYS, rng)
    queries = rows >= KEYS.first_query
    distances = [
        place - np.flatnonzero(rows[row] == rows[row, place + 1])[0]
        for row, place in np.argwhere(queries)
    ]
    counts, _ = np.histogram(distances, bins=8, range=(0, length))
    assert counts.min() > 0.08 * len(distances)
    assert max(distances) > 0.97 * length
