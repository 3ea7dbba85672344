"""What `hub_model` reads of a config.json and refuses; identity, names, hub cache and folders."""

import contextlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from lce_core.errors import DataError, SpecError, UnavailableError
from lce_core.models import MODELS, LanguageModel
from lce_core.models.hub_model.facts import read_facts
from lce_core.study.cost import matmul_parameters, num_parameters
from tests.support.architectures import hub_model, random_model, save
from tests.support.published_configs import CONFIGS

COMMIT = "0123456789abcdef0123456789abcdef01234567"
QWEN: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"],
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 24,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
"""Qwen2.5-0.5B's keys."""


def parsed(**entry: Any) -> LanguageModel:
    return MODELS.parse({"name": "hub_model", **entry}, "base_models[0]")


def written(folder: Path, **changes: Any) -> Path:
    """A folder with Qwen's config.json, keys changed or, if None, left out."""
    config = {key: value for key, value in {**QWEN, **changes}.items() if value is not ...}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_a_published_configuration_gives_the_model_its_authors_describe(tmp_path):
    base = hub_model(written(tmp_path))
    geometry, shape = base.geometry, base.shape
    assert (geometry.head_dim, geometry.rotary_dim, geometry.theta) == (64, 64, 1e6)
    assert (geometry.num_heads, geometry.num_kv_heads, geometry.trained_context) == (14, 2, 32768)
    # The Qwen2.5 report, arXiv:2412.15115, table 1 and model card: 0.49 B, 0.36 B of them without
    # the embedding, which here is the head too. Biases and norms are no matrix products.
    assert matmul_parameters(shape, geometry) == pytest.approx(0.49e9, rel=0.01)
    assert matmul_parameters(shape, geometry) - 896 * 151936 == pytest.approx(0.36e9, rel=0.01)
    # The study may decide where the configuration says two contexts.
    folder = written(tmp_path, original_max_position_embeddings=4096)
    assert hub_model(folder, trained_context=4096).geometry.trained_context == 4096


PUBLISHED = {
    "SmolLM3-3B": (3.08, 27),
    "Olmo-3-1025-7B": (7.30, 8),
    "phi-4": (14.7, 40),
    "Phi-3.5-mini-instruct": (3.82, 32),
    "Phi-4-mini-instruct": (3.84, 32),
    "granite-3.3-8b-base": (8.17, 40),
    "glm-4-9b-hf": (9.40, 40),
    "c4ai-command-r-v01": (35.0, 40),
    "gemma-3-4b-pt": (3.88, 5),
}
"""Parameters in billions, and the number of layers that are extended."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_families_have_the_sizes_that_their_authors_state(name, tmp_path):
    billions, extended = PUBLISHED[name]
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS[name]))
    base = hub_model(tmp_path, trained_context=131072)
    assert num_parameters(base) == pytest.approx(billions * 1e9, rel=0.005)
    local = base.local.layers if base.local else ()
    assert base.shape.num_layers - len({*local, *base.geometry.unrotated}) == extended
    words = f"methods extend {extended} of {base.shape.num_layers} layers"
    assert (words in (base.note or "")) == (extended < base.shape.num_layers)


def test_a_model_folder_may_have_any_name(tmp_path):
    """A decoded or shortened name, or a pattern, would find the neighbour, which has no model."""
    folder = tmp_path / "%41 [1]?*#'\u00e9;\n"
    for name in (folder.name, "A", "%41 1"):
        (tmp_path / name).mkdir()
    save("llama", folder)
    base = hub_model(folder)
    assert base.tokenizer(folder).encode("a") == [97]
    assert base.load(folder, torch.float32).config.model_type == "llama"


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"model_type": "mine"}, "'mine'; expected .*: a model type that was compared"),
    ({"model_type": "falcon"}, "through AttentionInterface; this model"),
    ({"model_type": "deepseek_v3", "kv_lora_rank": 512}, "caches a latent"),
    ({"model_type": "mistral", "sliding_window": 4096, "use_sliding_window": ...},
     "sliding_window: got 4096; .* full attention .* a Mistral from v0.2 on"),
    ({"model_type": "mistral", "sliding_window": ..., "use_sliding_window": ...},
     "sliding_window: got 4096; .*: full attention"),
    ({"model_type": "phi3", "sliding_window": 2047, "use_sliding_window": ...},
     "sliding_window: got 2047; .*, or a window at least as long as the context"),
    ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
    ({"model_type": "gemma", "head_dim": 64, "use_bidirectional_attention": True},
     "applied: causal attention"),
    ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_scaling: .* for every text"),
    ({"rope_parameters": {"rope_type": "proportional"}}, "rope_parameters: .* above 0"),
    ({"rope_parameters": {"full_attention": {"rope_type": "default"}}}, "one RoPE table for all"),
    ({"vision_config": {"depth": 32}}, "vision_config: .* a text-only model"),
    ({"is_encoder_decoder": True}, "applied: a decoder without encoder"),
    ({"auto_map": {"AutoModelForCausalLM": "m.M"}}, "such code is never run"),
    ({"quantization_config": {"bits": 4}}, "weights in floating point"),
    ({"architectures": ["Qwen2ForSequenceClassification"]}, "language-model head"),
    ({"original_max_position_embeddings": 4096}, "which is 4096; .*`trained_context: N`"),
    # Qwen2.5-1M
    ({"max_position_embeddings": 1010000, "dual_chunk_attention_config": {
        "chunk_size": 262144, "local_size": 8192, "original_max_position_embeddings": 262144}},
     "which is 262144; .*`trained_context: N`"),
    # Vicuna-16k, and YaRN whose original context is missing
    ({"model_type": "llama", "use_sliding_window": ..., "sliding_window": ...,
      "max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}},
     "rope_scaling: got .* for 4096 or for 16384 .*`trained_context: 4096` .*, or 16384 if"),
    ({"rope_scaling": {"type": "longrope", "short_factor": [1.0] * 48,
                       "long_factor": [1.0, *range(2, 48), 64.5]}},
     r"'short_factor': \[1.0 \.\.\. 1.0, 48 numbers\], 'long_factor': \[1.0 \.\.\. 64.5, 48 n"),
    ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "for 32768 or for 131072 tokens"),
    ({"partial_rotary_factor": 0.5, "rope_scaling": {"type": "linear", "factor": 4.0}},
     "partial_rotary_factor: .* rotated as a whole"),
    ({"num_attention_heads": 15, "head_dim": 64}, "rope geometry: got 15 heads, 2 key-value"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "message"), REFUSED)
def test_a_model_that_methods_cannot_be_put_on_is_refused_with_the_reason(
    changes, message, tmp_path
):
    with pytest.raises(SpecError, match=rf"config\.json: .*{message}"):
        read_facts(written(tmp_path, **changes))


YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192}  # fmt: skip
LONGROPE = {"rope_type": "longrope", "short_factor": [1.0] * 32, "long_factor": [1.0] * 32}


@pytest.mark.parametrize(
    ("changes", "context"),
    [
        ({"rope_scaling": YARN}, 131072),  # Qwen2.5's model card
        ({"rope_scaling": YARN, "max_position_embeddings": 40960}, 131072),  # Qwen3's
        ({"rope_scaling": YARN, "max_position_embeddings": 131072}, 131072),
        ({"rope_scaling": YARN | {"factor": None}, "max_position_embeddings": 65536}, 65536),
        ({"rope_scaling": YARN | {"type": "linear"}}, 131072),
        # Llama 3.1, whose factor is not the ratio of the contexts
        ({"rope_scaling": LLAMA3, "max_position_embeddings": 131072}, 131072),
        ({"rope_scaling": LONGROPE, "original_max_position_embeddings": 4096}, 32768),
    ],
)
def test_the_trained_context_of_a_scaled_model_is_the_one_it_was_scaled_to(
    changes, context, tmp_path
):
    folder = written(tmp_path, **changes)
    assert read_facts(folder).trained_context == context
    assert read_facts(folder, 50000).trained_context == 50000


WHOLE_NUMBERS = ("num_attention_heads", "max_position_embeddings", "hidden_size",
    "num_hidden_layers", "vocab_size", "intermediate_size", "num_key_value_heads")  # fmt: skip


@pytest.mark.parametrize(
    ("key", "given"),
    [
        *((key, ...) for key in WHOLE_NUMBERS),
        *(("hidden_size", given) for given in (0, -3, "14", 14.0, True, None)),
        *(("rope_theta", given) for given in (0, "1e6", True)),
        ("partial_rotary_factor", 0),
    ],
)
def test_a_key_that_is_missing_or_no_positive_number_is_named(key, given, tmp_path):
    got = "nothing" if given in (..., None) else repr(given)
    model_type = "phi" if key == "partial_rotary_factor" else "qwen2"
    with pytest.raises(DataError, match=rf"config\.json: {key}: got {got}; expected a positive"):
        read_facts(written(tmp_path, **{"model_type": model_type, key: given}))


@pytest.mark.parametrize("given", [[1, 0, 1], [0] * 24, 7])
def test_layers_without_rotation_are_listed_for_all_layers_and_not_all_of_them(given, tmp_path):
    folder = written(tmp_path, model_type="smollm3", no_rope_layers=given)
    with pytest.raises(DataError, match=r"no_rope_layers: got .*; expected a 0 or 1 for each"):
        read_facts(folder)


# Planning takes time or memory in proportion to some of these.
@pytest.mark.parametrize("key", WHOLE_NUMBERS)
def test_a_size_far_above_all_published_models_is_refused(key, tmp_path):
    with pytest.raises(DataError, match=rf"config\.json: {key}: got 10{{12}}; expected at most "):
        read_facts(written(tmp_path, **{key: 10**12}))


ODD = (None, True, "x", [1], ["a"], {}, {"a": 1}, {"full_attention": 1}, math.nan, math.inf, -1, 0,
    0.5, 10**30, 1e300)  # fmt: skip
GEMMA = QWEN | {"model_type": "gemma3_text", "head_dim": 64, "sliding_window_pattern": 6,
    "rope_local_base_freq": 1e4, "layer_types": ["full_attention"] * 24}  # fmt: skip
EXPERTS = QWEN | {"model_type": "qwen3_moe", "head_dim": 64, "num_experts": 8,
    "num_experts_per_tok": 2, "moe_intermediate_size": 64, "mlp_only_layers": []}  # fmt: skip


@pytest.mark.parametrize("base", [QWEN, GEMMA, EXPERTS], ids=lambda base: base["model_type"])
def test_no_type_and_no_size_of_any_value_is_a_defect(base, tmp_path):
    read_facts(written(tmp_path, **base))
    ropes = [
        {key: rope | {name: odd}}
        for key in ("rope_scaling", "rope_parameters")
        for rope in (YARN, LLAMA3, LONGROPE)
        for name in rope
        for odd in ODD
    ]
    keys = (*base, "rope_scaling", "rope_parameters", "partial_rotary_factor", "layer_types")
    for changes in (*ropes, *({key: odd} for key in keys for odd in ODD)):
        with contextlib.suppress(DataError, SpecError):
            read_facts(written(tmp_path, **{**base, **changes}))


# transformers would look the first up in torch, and download code for the second.
@pytest.mark.parametrize(
    ("key", "given"),
    [
        *((key, given) for key in ("torch_dtype", "dtype") for given in ("os.system", 5, ["a"])),
        ("attn_implementation", "kernels-community/flash-attn"),
        ("_attn_implementation", {"": "owner/name"}),
    ],
)
def test_a_configuration_that_names_code_is_refused(key, given, tmp_path):
    with pytest.raises(DataError, match=rf"config\.json: {key}: got "):
        hub_model(written(tmp_path, **{key: given}))
    hub_model(written(tmp_path, torch_dtype="bfloat16", attn_implementation="flash_attention_2"))


@pytest.mark.timeout(600)  # opening a FIFO blocks
@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"model": {"type": "BPE"}}', None])
def test_a_tokenizer_that_cannot_be_read_is_named(content, tmp_path):
    model, file = hub_model(written(tmp_path)), tmp_path / "tokenizer.json"
    os.mkfifo(file) if content is None else file.write_bytes(content)
    with pytest.raises(DataError, match="tokenizer"):
        model.tokenizer(tmp_path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("content", [b"{", b"\xff", b"null", b"[" * 100_000, None])
def test_a_configuration_that_is_none_is_refused(content, tmp_path):
    file = tmp_path / "config.json"
    os.mkfifo(file) if content is None else file.write_bytes(content)
    with pytest.raises(
        DataError, match=r"config\.json: got .*; expected (a file|.*config\.json of a)"
    ):
        hub_model(tmp_path)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, "label: got neither a label nor a repository"),
        ({"repo": "a/b"}, "revision: got nothing"),
        ({"repo": "a/b", "revision": "main"}, "revision: got 'main'; expected the 40 hex digits"),
        ({"repo": "b", "revision": COMMIT}, "repo: got 'b'"),
        ({"label": "My-Model"}, "label: got 'My-Model'"),
    ],
)
def test_an_entry_without_an_identity_is_refused(entry, message):
    with pytest.raises(SpecError, match=rf"base_models\[0\].*{message}"):
        parsed(**entry)


def test_the_label_only_names_and_the_facts_are_the_configurations(tmp_path):
    repo = {"repo": "Qwen/Qwen2.5-0.5B", "revision": COMMIT}
    assert parsed(**repo).known_as == "qwen2_5_0_5b"
    assert parsed(**repo, label="small").known_as == "small"
    assert parsed(**repo).identity() == parsed(**repo, label="small").identity()
    one, other = (hub_model(written(tmp_path), label=label) for label in ("one", "other"))
    assert one.identity() == other.identity()
    assert one.known_as == "one"
    assert str(tmp_path) not in json.dumps(one.identity())
    assert MODELS.from_identity(one.identity()).geometry == one.geometry
    bigger = hub_model(written(tmp_path, vocab_size=152064))
    assert bigger.identity() != one.identity()


def test_a_model_that_no_plan_resolved_knows_no_geometry_and_facts_are_never_written(tmp_path):
    with pytest.raises(AssertionError, match=r"config\.json is read when the study is planned"):
        _ = parsed(label="mine").geometry
    facts = hub_model(written(tmp_path)).identity()["facts"]
    with pytest.raises(SpecError, match="base model mine: facts: got the key `facts` in a study"):
        parsed(label="mine", facts=facts).resolved(tmp_path)


RESOLVE = """
import sys
from lce_core.models import MODELS
known = []
for name in ("whole", "bare", "absent"):
    entry = {"name": "hub_model", "repo": f"org/{name}", "revision": sys.argv[1]}
    try:
        known.append(MODELS.parse(entry, "x").resolved(None))
        print(known[-1].geometry.theta, known[-1].known_as, "torch" in sys.modules)
    except Exception as error:
        print(type(error).__name__, error)
whole, bare = known
print(len(whole.tokenizer(None)), whole.load(None, None).config.model_type)
try:
    bare.tokenizer(None)
except Exception as error:
    print(type(error).__name__, error)
"""


@pytest.mark.slow
def test_a_cached_repository_needs_no_network_and_others_are_unavailable(tmp_path):
    folders = {}
    for name in ("whole", "bare"):
        folders[name] = tmp_path / "hub" / f"models--org--{name}" / "snapshots" / COMMIT
        folders[name].mkdir(parents=True)
    save("qwen3", folders["whole"])
    written(folders["bare"])
    hub = {"HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "0"}
    hub |= {"HF_ENDPOINT": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}  # a closed port
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, COMMIT],
        env=os.environ | hub,
        capture_output=True,
        text=True,
        check=True,
    )
    first, second, absent, loaded, unloaded = done.stdout.splitlines()
    # Configurations are read without torch.
    assert [first, second] == ["50000.0 whole False", "1000000.0 bare False"]
    for part in ("UnavailableError base model absent", COMMIT, "--model-folder absent="):
        assert part in absent
    assert "HF_TOKEN" in absent
    assert loaded == "392 qwen3"
    assert unloaded.startswith(f"UnavailableError base model bare: org/bare@{COMMIT}: got files")


def test_fetching_looks_at_the_configuration_first(tmp_path, monkeypatch):
    folder = written(tmp_path, auto_map={"AutoConfig": "x.Y"})
    monkeypatch.setattr("lce_core.models._stock.fetch", lambda *_: folder)  # the network
    with pytest.raises(SpecError, match="such code is never run"):
        parsed(repo="a/b", revision=COMMIT).fetch(tmp_path)


def test_without_folder_and_repository_there_is_nothing_to_read_or_fetch(tmp_path):
    with pytest.raises(UnavailableError, match="--model-folder mine=FOLDER"):
        parsed(label="mine").resolved(None)
    with pytest.raises(UnavailableError, match=r"a folder without config\.json"):
        parsed(label="mine").resolved(tmp_path)
    with pytest.raises(UnavailableError, match="neither a folder nor a repository"):
        parsed(label="mine").fetch(tmp_path)


@pytest.mark.parametrize("model_type", ["mistral", "phi"])
def test_published_weights_come_with_the_base_models_own_rotary_embedding(model_type, tmp_path):
    plain = random_model(model_type)
    plain.save_pretrained(tmp_path / "base")
    scaled = random_model(model_type, rope={"rope_type": "linear", "factor": 4.0})
    scaled.config.max_position_embeddings = 64
    scaled.save_pretrained(tmp_path / "published")
    base = hub_model(tmp_path / "base")
    loaded = base.load_published(tmp_path / "published", torch.float32)
    text = torch.arange(12)[None]
    assert torch.equal(loaded(text).logits, plain(text).logits)
    assert not torch.equal(scaled(text).logits, plain(text).logits)
