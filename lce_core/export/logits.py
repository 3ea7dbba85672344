"""Logits of a tiny random model with the RoPE of a config.json, for `lce certify`.

The tiny model has the type, heads, rotary settings and kinds of layers of the stated model, and its
config.json states them in the same keys. All programs load the same float32 weights.
"""

import json
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from lce_core.errors import LceError, first_line
from lce_core.evaluation.cross_entropy import Head
from lce_core.export.runtimes import Stated
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.models import MODELS
from lce_core.models._stock import load_weights, read_config
from lce_core.models._weights import damaged

TOKENS = 256
_VOCABULARY, _LAYERS = 128, 8
"""Eight layers contain a layer of each kind: at least every sixth attends to all tokens."""

_EXPERTS = ("num_experts", "num_local_experts", "num_experts_per_tok")
_DEFAULTS = (
    "hidden_act",
    "layer_norm_eps",
    "query_pre_attn_scalar",
    "rms_norm_eps",
    "tie_word_embeddings",
)
"""Keys that have nothing to do with RoPE and for which programs have different defaults."""
_SCALES = ("embedding_multiplier", "residual_multiplier", "logits_scaling", "logit_scale")
"""Factors that would shrink the logits of a tiny model, and with them the effect of RoPE."""


def write_tiny(stated: Stated, folder: Path) -> None:
    """Write config.json and random weights of the tiny model into `folder`."""
    facts, layers = stated.facts, min(_LAYERS, stated.facts.num_layers)
    grouped = facts.num_kv_heads < facts.num_heads
    config = {
        **stated.config,
        "model_type": stated.kind,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "num_key_value_heads": 1 if grouped else 2,
        "hidden_size": 2 * facts.head_dim,
        "head_dim": facts.head_dim,
        "intermediate_size": 8 * facts.head_dim,
        "moe_intermediate_size": 32,
        "vocab_size": _VOCABULARY,
        "initializer_range": (2 * facts.head_dim) ** -0.5,  # scores have a variance of about 1
        **{key: 2 for key in _EXPERTS if key in stated.config},
        **{key: 1.0 for key in _SCALES if key in stated.config},
        **{f"{name}_token_id": None for name in ("bos", "eos", "pad")},
        **{
            key: stated.config[key][:layers]
            for key in ("layer_types", "no_rope_layers")
            if stated.config.get(key)
        },
    }
    if "attention_multiplier" in config:
        config["attention_multiplier"] = facts.head_dim**-0.5
    for key in ("architectures", "auto_map", "quantization_config"):
        config.pop(key, None)
    folder.mkdir(exist_ok=True)
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        try:
            built = AutoModelForCausalLM.from_config(read_config(folder))
        except Exception as error:  # transformers raises whatever a value causes
            got = f"a model that transformers cannot build ({first_line(error)})"
            expected = "the configuration of a transformers model"
            raise damaged("config.json", got, expected) from error
    built.float().save_pretrained(folder)
    known = built.config.to_dict()
    config = {key: known[key] for key in _DEFAULTS if key in known} | config
    config["architectures"] = [type(built).__name__]
    # transformers renames the keys whose meaning is compared.
    file.write_text(json.dumps(config), encoding="utf-8")


def difference(stated: Stated, folder: Path, runtime: str) -> float | str:
    """Return the largest difference of logits to transformers, or why the program did not run."""
    compute = {"transformers": _own, "mlx": _mlx}.get(runtime)
    if compute is None:
        return "not run"
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(_VOCABULARY, (1, min(TOKENS, stated.context)), generator=generator)
    with torch.inference_mode():
        theirs = load_weights(folder, torch.float32)(ids).logits
        found = compute(stated, folder, ids)
    return found if isinstance(found, str) else float((found - theirs).abs().max())


def _own(stated: Stated, folder: Path, ids: torch.Tensor) -> torch.Tensor | str:
    """Compute logits by lce from its float64 tables."""
    entry = {"name": "hub_model", "label": "tiny", "trained_context": stated.lengths[0]}
    try:
        base = MODELS.parse(entry, "").resolved(folder)
        none = METHODS.parse({"name": "none"}, "")
        model = extend(base.load(folder, torch.float32), base, none, target=stated.context)
    except LceError as error:
        return f"not run: {error.where.rpartition(' ')[2]} (no method extends this model)"
    model.begin_request(ids.shape[1])
    return Head.of(model.model).logits(model.hidden_states(ids))


def _mlx(_: Stated, folder: Path, ids: torch.Tensor) -> torch.Tensor | str:
    if find_spec("mlx_lm") is None:
        return "not run"
    import mlx.core as mx
    import numpy as np
    from mlx_lm.utils import load_model

    try:
        model, _ = load_model(folder)
    except Exception as error:  # noqa: BLE001 - whatever another program raises is a result
        return f"fails: {first_line(error)}"
    return torch.from_numpy(np.array(model(mx.array(ids.numpy())).astype(mx.float32)))
