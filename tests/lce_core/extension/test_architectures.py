"""Every architecture of `hub_model` against stock transformers and dense attention."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from lce_core.errors import SpecError
from lce_core.extension.extending import extend
from lce_core.extension.learned import LEARNED
from lce_core.models import LanguageModel
from lce_core.rope import RopeGeometry, RopeTable
from lce_core.rope.architectures import ARCHITECTURES
from lce_core.study.cost import matmul_parameters, stored_parameters
from tests.support.architectures import (
    OWN,
    SLIDING,
    TRAINED,
    hub_model,
    in_float64,
    random_model,
    save,
)
from tests.support.folder_models import (
    TARGET,
    Distance,
    agree,
    causal,
    dense_logits,
    exported,
    logits,
    method,
    over_schemes,
    stock_logits,
    tokens,
    trained,
)

over_architectures = pytest.mark.parametrize("kind", OWN)


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> dict[str, Path]:
    return {kind: save(kind, tmp_path_factory.mktemp(kind)) for kind in OWN}


def test_every_architecture_has_a_tiny_model() -> None:
    # Others: test_sliding_layers.py, test_attention_sinks.py and test_soft_caps.py.
    assert {*OWN, *SLIDING, "gpt_oss", "gemma2"} == set(ARCHITECTURES)


def of_kind(kind: str, ids: torch.Tensor, **rope: Any) -> torch.Tensor:
    return in_float64(random_model(kind, rope=rope))(ids).logits


def rotates(attention: Any) -> bool:
    return bool(getattr(attention, "use_rope", True))


def dense(folder: Path, ids: torch.Tensor, table: RopeTable, distance: Distance) -> torch.Tensor:
    own, plain = (table, distance), (RopeTable(np.zeros(table.inv_freq.shape[-1])), causal)
    return dense_logits(folder, ids, lambda attention: own if rotates(attention) else plain)


@over_architectures
def test_facts_are_what_transformers_reads_from_the_same_file(kind, folders, tmp_path):
    written = json.loads((folders[kind] / "config.json").read_text())
    written["max_position_embeddings"] = 77
    written.pop("original_max_position_embeddings", None)
    rope = written.pop("rope_parameters")
    older = {**written, "rope_theta": 3e5, "rope_scaling": None}
    # Layers of all other kinds ignore this key.
    older["partial_rotary_factor"] = rope.get("partial_rotary_factor", 0.5)
    needed = {"model_type", "head_dim", "num_key_value_heads", "sliding_window", "pad_token_id"}
    sizes = {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"}
    sizes |= {"num_attention_heads", "max_position_embeddings"}
    sizes |= {"num_experts", "num_local_experts", "num_experts_per_tok", "moe_intermediate_size"}
    sizes |= {"mlp_only_layers", "no_rope_layers"}
    least = {key: value for key, value in written.items() if key in needed | sizes}
    for config in (written | {"rope_parameters": rope}, older, least):
        (tmp_path / "config.json").write_text(json.dumps(config))
        theirs: Any = AutoConfig.from_pretrained(tmp_path)
        with torch.device("meta"):
            built: Any = AutoModelForCausalLM.from_config(theirs)
        ours = hub_model(tmp_path)
        attention = [layer.self_attn for layer in built.model.layers]
        geometry = RopeGeometry(
            head_dim=attention[0].head_dim,
            rotary_dim=2 * len(type(built.model.rotary_emb)(theirs).inv_freq),
            num_heads=theirs.num_attention_heads,
            num_kv_heads=theirs.num_key_value_heads,
            theta=theirs.rope_parameters["rope_theta"],
            trained_context=77,
            unrotated=tuple(index for index, each in enumerate(attention) if not rotates(each)),
        )
        assert ours.geometry == geometry
        assert ours.shape.tied_embeddings == theirs.tie_word_embeddings
        assert (ours.shape.num_layers, ours.shape.hidden_size) == (2, theirs.hidden_size)


@over_architectures
def test_a_token_is_multiplied_with_the_weights_of_all_linear_layers(kind, folders):
    base, model = hub_model(folders[kind]), random_model(kind)
    linear = (layer for layer in model.modules() if isinstance(layer, nn.Linear))
    passed = stored = sum(layer.weight.numel() for layer in linear)
    for layer in model.model.layers:
        if experts := getattr(layer.mlp, "experts", None):
            router, matrices = layer.mlp.gate, (experts.gate_up_proj, experts.down_proj)
            stored += router.weight.numel() + sum(each.numel() for each in matrices)
            passed += router.weight.numel() + router.top_k * sum(
                each[0].numel() for each in matrices
            )
    assert matmul_parameters(base.shape, base.geometry) == passed
    assert stored_parameters(base.shape, base.geometry) == stored


@over_architectures
def test_no_extension_equals_the_stock_model(kind, folders):
    ids = tokens(40)
    expected = of_kind(kind, ids)
    for cuts in (None, (13, 14, 30)):
        agree(logits(folders[kind], method("none"), ids, cuts), expected)


@over_architectures
@pytest.mark.parametrize(
    ("name", "rope"),
    [
        ("pi", {"rope_type": "linear", "factor": 4.0}),
        ("ntk_frozen", {"rope_type": "dynamic", "factor": 2.0}),
        ("abf_single_stage", {"rope_theta": 5e6}),
    ],
)
def test_frequency_methods_equal_stock_models_with_that_scaling(kind, name, rope, folders):
    ids = tokens(TARGET)
    agree(logits(folders[kind], method(name), ids), of_kind(kind, ids, **rope))


@over_architectures
def test_yarn_equals_a_stock_yarn_model(kind, folders):
    ids, rope = tokens(TARGET), {"rope_type": "yarn", "factor": 4.0, "attention_factor": 1.0}
    model = random_model(kind, rope={**rope, "original_max_position_embeddings": TRAINED})
    for layer in model.model.layers:  # the factor acts on whole heads, also on unrotated elements
        if rotates(layer.self_attn):
            layer.self_attn.scaling *= (0.1 * np.log(4.0) + 1) ** 2
    agree(logits(folders[kind], method("yarn"), ids), in_float64(model)(ids).logits)


@over_architectures
@pytest.mark.parametrize("name", ["pi", "yarn"])
def test_stock_transformers_computes_what_was_exported(kind, name, folders, tmp_path):
    chosen, source = method(name), folders[kind]
    if kind == "mixtral":  # whose published file states no width of heads
        source = Path(shutil.copytree(source, tmp_path / "source"))
        config = json.loads((source / "config.json").read_text())
        (source / "config.json").write_text(json.dumps({**config, "head_dim": None}))
    geometry = hub_model(source).geometry
    if name == "yarn" and geometry.rotary_dim < geometry.head_dim:
        with pytest.raises(SpecError, match="multiplies only the rotated elements"):
            exported(source, chosen, tmp_path / "out")
        return
    ids, out = tokens(TARGET), exported(source, chosen, tmp_path / "out")
    agree(logits(folders[kind], chosen, ids), stock_logits(out, ids))


@over_architectures
@over_schemes
def test_schemes_equal_dense_attention_in_that_architecture(kind, chosen, distance, folders):
    ids, table = tokens(30), RopeTable(hub_model(folders[kind]).geometry.inv_freq())
    expected = dense(folders[kind], ids, table, distance)
    for cuts in (None, (7, 8, 20)):
        found = logits(folders[kind], chosen, ids, cuts)
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@over_architectures
def test_a_base_per_head_equals_dense_attention(kind, folders, tmp_path):
    ids, geometry = tokens(30), hub_model(folders[kind]).geometry
    group = geometry.num_heads // geometry.num_kv_heads
    bases = [2e4 * (1 + head // group) ** 2 for head in range(4)]
    table = RopeTable(np.stack([geometry.inv_freq(base) for base in bases]))
    expected = dense(folders[kind], ids, table, causal)
    found = logits(folders[kind], method("harpe", bases=bases), ids, (9, 10))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
    learned = table.inv_freq[::group] / geometry.inv_freq()
    rows = torch.from_numpy(learned).log().expand(2, *learned.shape).contiguous()
    save_file({"log_multipliers": rows.float()}, tmp_path / LEARNED)
    chosen = method("learned_rope", sharing="head")
    found = logits(folders[kind], chosen, ids, (9, 10), learned=tmp_path / LEARNED)
    # The parameters are float32.
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


@over_architectures
def test_the_stock_rotation_is_transformers_own_and_fp32_is_nearer_to_exact(kind, folders):
    ids = tokens(TARGET, batch=8)
    reference: Any = AutoModelForCausalLM.from_pretrained(folders[kind], dtype=torch.bfloat16)
    expected, exact = reference(ids).logits, in_float64(reference)(ids).logits
    own, fp32 = (
        logits(folders[kind], method("none"), ids, dtype=torch.bfloat16, rotation=rotation)
        for rotation in ("stock", "fp32")
    )
    assert torch.equal(own, expected)
    if ARCHITECTURES[kind].rounds_cosines:
        assert (fp32.double() - exact).std() < (own.double() - exact).std()
    else:
        assert torch.equal(fp32, expected)


METHODS_OF_TRAINING = [method("longlora"), method("yarn"), method("landmark", block=4, top_k=2)]


@pytest.mark.parametrize(
    ("kind", "chosen"),
    [(kind, METHODS_OF_TRAINING[number % 3]) for number, kind in enumerate(OWN)],
    ids=OWN,
)
def test_a_trained_checkpoint_is_a_stock_model_that_the_plan_knows(kind, chosen, folders, tmp_path):
    checkpoint, ids = trained(folders[kind], chosen, tmp_path), tokens(TRAINED)
    expected = stock_logits(checkpoint, ids)
    agree(logits(checkpoint, method("none"), ids), expected)
    assert (expected - of_kind(kind, ids)).abs().max() > 1e-2


@pytest.mark.parametrize("kind", ["mistral", "phi3"])
def test_a_window_as_long_as_the_trained_context_never_acts(kind, tmp_path):
    folder, ids = save(kind, tmp_path / "model", sliding_window=TRAINED), tokens(TARGET)
    agree(logits(folder, method("none"), ids), of_kind(kind, ids))
    out = exported(folder, method("pi"), tmp_path / "out")
    agree(logits(folder, method("pi"), ids), stock_logits(out, ids))


def test_a_model_whose_layers_slide_is_refused_also_when_it_is_loaded():
    class Plain(LanguageModel):
        geometry = RopeGeometry(12, 12, 4, 2, 5e4, TRAINED)

    with pytest.raises(SpecError, match="sliding_window: got 8"):
        extend(random_model("mistral", sliding_window=8), Plain(), method("pi"), target=TARGET)
