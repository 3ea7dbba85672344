"""Find out which RoPE tables other programs compute from a config.json, for `lce certify`.

A reading states a program's settings in transformers' words, so that `stated_table` computes the
program's table. Each follows the program's source; docs/runtimes.md compares readings with programs
that ran. Programs are assumed to serve the whole context, `max_position_embeddings`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.errors import SpecError
from lce_core.models import read_config_json
from lce_core.models.hub_model.facts import (
    Facts,
    checked_facts,
    lacks,
    language_model_of,
    unreadable_rope,
)
from lce_core.rope import RopeTable
from lce_core.rope.architectures import ARCHITECTURES
from lce_core.rope.stated import (
    FULL,
    ORIGINAL,
    PLAIN,
    SLIDING,
    TYPES,
    longrope_temperature,
    stated_parameters,
    stated_table,
    temperature,
)

_AGREEMENT = 1e-6
"""Largest relative difference of tables that agree. All programs round them to float32."""


@dataclass(frozen=True)
class Reading:
    """A program's RoPE settings for each kind of layers."""

    rope: Mapping[str, Any]
    """`rope_parameters` of layers with full attention, as transformers understands them."""
    rotary_dim: int
    sliding: tuple[int, ...] = ()
    """Layers with a RoPE of their own, unscaled and of base `local_theta`."""
    local_theta: float | None = None
    unrotated: tuple[int, ...] = ()


@dataclass(frozen=True)
class Stated:
    """A model's config.json, and transformers' reading of it."""

    config: Mapping[str, Any]
    facts: Facts
    reading: Reading

    @property
    def kind(self) -> str:
        return self.facts.model_type

    @property
    def context(self) -> int:
        return self.facts.trained_context

    def own(self, key: str, default: Any = None) -> Any:
        """Return a value of the top level of config.json; null counts as missing."""
        found = self.config.get(key)
        return default if found is None else found

    def table(self, reading: Reading, length: int) -> RopeTable:
        """Return the table of layers with full attention for a text of `length` tokens."""
        geometry = replace(self.facts.geometry, rotary_dim=reading.rotary_dim, scaling=None)
        with np.errstate(all="ignore"):
            return stated_table(reading.rope, geometry, self.context, length)

    @property
    def lengths(self) -> list[int]:
        """Lengths of texts in tokens that may have different tables."""
        rope = self.reading.rope
        longest = self.context * (rope["factor"] if rope["rope_type"] == "dynamic" else 1)
        return sorted({min(self.context, rope.get(ORIGINAL) or self.context), int(longest)})


def read_stated(folder: Path) -> Stated:
    """Read the folder's config.json as transformers does."""
    file, config = folder / "config.json", language_model_of(read_config_json(folder))
    kind, text = str(config.get("model_type")), config.get("text_config")
    if (architecture := ARCHITECTURES.get(kind)) is None:
        reason = lacks(config) or (lacks(text) if isinstance(text, Mapping) else None)
        raise SpecError(
            f"{file}: model_type",
            repr(kind),
            "a model type that methods extend, because lce reads only their RoPE in other programs:"
            f" {reason or ', '.join(ARCHITECTURES)}",
            "name another model",
        )
    rope = stated_parameters(config, str(file))
    if rope["rope_type"] not in TYPES:
        expected = f"one of {', '.join(TYPES)}"
        raise SpecError(f"{file}: rope_type", repr(rope["rope_type"]), expected, "correct it")
    # Facts of the model before scaling, which also takes what methods cannot extend.
    plain: dict[str, Any] = {"rope_type": PLAIN, "rope_theta": rope["rope_theta"]}
    if architecture.partial_rotary_factor and "partial_rotary_factor" in rope:
        plain["partial_rotary_factor"] = rope["partial_rotary_factor"]
    if architecture.local_theta is not None:
        given = config.get("rope_parameters")
        local = given.get(SLIDING) if isinstance(given, Mapping) else None
        plain = {FULL: plain, SLIDING: local or {}}
    context = {**architecture.defaults, **config}.get("max_position_embeddings")
    unscaled = {**config, "rope_scaling": None, "rope_parameters": plain}
    # Quantised weights and sliding windows change no RoPE.
    unscaled["quantization_config"] = None
    if architecture.full_every is None:
        unscaled |= {"sliding_window": None, "use_sliding_window": False, "layer_types": None}
    facts = checked_facts(unscaled, file, context if type(context) is int else None)
    local, own = facts.local, facts.geometry
    theta = local.theta if local else None
    sliding = local.layers if local and theta is not None else ()
    stated = Stated(config, facts, Reading(rope, own.rotary_dim, sliding, theta, own.unrotated))
    try:
        for length in stated.lengths:
            stated.table(stated.reading, length)
    except (KeyError, TypeError, ValueError, ArithmeticError, SpecError) as error:
        raise unreadable_rope(f"{file}: rope_parameters", rope, error) from error
    return stated


_VLLM_CODE = frozenset(
    ("cohere", "gemma", "gemma2", "gemma3_text", "glm4", "gpt_oss", "granite", "llama", "mistral",
     "mixtral", "nemotron", "phi3", "qwen2", "qwen3", "qwen3_moe", "stablelm")
)  # fmt: skip
"""Model types for which vLLM has its own layers. It runs transformers' layers of all others."""


def _vllm(stated: Stated) -> Reading | str:
    """Source: vllm/model_executor/layers/rotary_embedding/__init__.py, `get_rope`."""
    rope, own = dict(stated.reading.rope), stated.reading
    kind, context = rope["rope_type"], stated.context
    if stated.kind not in _VLLM_CODE:
        return own
    if stated.kind == "gpt_oss":
        # model_executor/models/gpt_oss.py passes these keys on, whatever rope_type is.
        keys = ("rope_theta", "factor", ORIGINAL, "beta_fast", "beta_slow", "truncate")
        if missing := [key for key in keys[:-1] if key not in rope]:
            return f"fails without {missing[0]}"
        rope = {"rope_type": "yarn"} | {key: rope[key] for key in keys if key in rope}
    elif kind == "dynamic":
        rope["rope_type"] = PLAIN  # scaled for max_position_embeddings, where dynamic is plain
    elif kind == "proportional":
        rope["factor"] = 1.0
    elif kind == "longrope":
        if ARCHITECTURES[stated.kind].adjacent:
            return "fails: longrope for pairs of adjacent elements"
        trained = rope.get(ORIGINAL, context)
        size = "long" if context > trained else "short"
        divisors, attention = rope[f"{size}_factor"], rope.get(f"{size}_mscale")
        rope |= {"short_factor": divisors, "long_factor": divisors}
        rope["attention_factor"] = attention or longrope_temperature(context / trained, trained)
    factor = rope.get("factor")
    if (kind == "linear" and type(factor) is not float) or (kind == "yarn" and factor is None):
        return f"fails: factor {factor!r} is no floating-point number"
    share = rope.get("partial_rotary_factor", stated.own("partial_rotary_factor"))
    if share is not None and not 0 < share <= 1:
        return f"fails: partial_rotary_factor {share} is not above 0 and at most 1"
    ignored = ARCHITECTURES[stated.kind].partial_rotary_factor is None and kind != "proportional"
    if ignored and share is not None:
        own = replace(own, rotary_dim=int(own.rotary_dim * share))
    return replace(own, rope=rope)


_LLAMA_CODE = frozenset(("granite", "llama", "mistral", "mixtral", "smollm3"))
"""Model types that llama.cpp's converter treats as Llama, with a table for llama3's scaling."""
_PLAIN_CODE = frozenset(("gemma", "gemma2", "glm", "phi", "stablelm"))
"""Model types for which it writes neither the RoPE base, 10,000 by default, nor the scaling."""


def _llama_cpp(stated: Stated) -> Reading | str:
    """Source: conversion/*.py, src/llama-context.cpp, src/models/*.cpp, ggml_rope_ext.

    The converter reads the configuration through transformers, which fills in its defaults.
    """
    own, kind, num_layers = stated.reading, stated.kind, stated.facts.num_layers
    if kind == "helium":
        return "has no such architecture"
    if kind == "smollm3":
        # Whatever no_rope_layers says.
        own = replace(own, unrotated=tuple(range(3, num_layers, 4)))
    elif kind == "gemma3_text":
        own = replace(own, sliding=_all_but(6, num_layers))  # whatever layer_types says
    given = {ORIGINAL: stated.context, **own.rope}
    rope = {"rope_type": PLAIN, "rope_theta": given["rope_theta"]}
    match given["rope_type"]:
        case _ if kind in _PLAIN_CODE:
            rope["rope_theta"] = 1e4
        case _ if kind == "nemotron" and given.get("factor") is not None:
            rope |= {"rope_type": "linear", "factor": given["factor"]}
        case "longrope" if kind == "phi3":
            trained = given[ORIGINAL]
            divisors = given["long_factor" if stated.context > trained else "short_factor"]
            rope |= {"rope_type": "longrope", "short_factor": divisors, "long_factor": divisors}
            rope["attention_factor"] = longrope_temperature(stated.context / trained, trained)
        case "linear" if kind not in ("cohere", "phi3"):
            rope |= {"rope_type": "linear", "factor": given["factor"]}
        case "yarn" if kind not in ("cohere", "phi3") and given["factor"] is not None:
            # The loader ignores attention_factor and betas, although the converter writes them.
            rope |= {key: given[key] for key in ("rope_type", "factor", ORIGINAL)}
        case "llama3" if kind in _LLAMA_CODE:
            rope = given
    return replace(own, rope=rope)


_MLX_THETA: Mapping[str, float | None] = {
    "cohere": 8e6, "gemma": 1e4, "gemma2": 1e4, "gemma3_text": 1e6, "glm": 1e4, "glm4": None,
    "gpt_oss": 1.5e5, "granite": None, "helium": None, "llama": 1e4, "mistral": 1e4,
    "mixtral": 1e6, "nemotron": 1e4, "olmo2": 1e4, "olmo3": None, "phi": 1e4, "phi3": 1e4,
    "qwen2": 1e6, "qwen3": None, "qwen3_moe": None, "smollm3": 1e4, "stablelm": None,
}  # fmt: skip
"""MLX's RoPE base for each model type if config.json has no `rope_theta`; None: it is required."""
_MLX_PLAIN = frozenset(
    ("cohere", "gemma", "gemma2", "glm", "glm4", "helium", "mixtral", "phi", "qwen3_moe",
     "stablelm")
)  # fmt: skip
"""Model types whose scaling MLX ignores."""
_MLX_SHARES = {"glm4": None, "nemotron": 0.5, "phi": 0.4, "phi3": 1.0, "stablelm": None}
"""Default share of rotated elements; None if the key is required. Others rotate whole heads."""


def _mlx(stated: Stated) -> Reading | str:
    """Source: mlx_lm/models/rope_utils.py, `initialize_rope`, and the file of each model type."""
    kind, facts = stated.kind, stated.facts
    scaling, theta = stated.own("rope_scaling"), stated.own("rope_theta")
    if kind == "qwen3" and (newer := stated.own("rope_parameters")):
        theta, scaling = newer.get("rope_theta") if theta is None else theta, scaling or newer
    theta = _MLX_THETA[kind] if theta is None else theta
    if theta is None:
        return "fails without rope_theta at the top level"
    own = replace(stated.reading, rotary_dim=facts.head_dim)
    if kind in _MLX_SHARES:
        share = stated.own("partial_rotary_factor", _MLX_SHARES[kind])
        if share is None:
            return "fails without partial_rotary_factor at the top level"
        own = replace(own, rotary_dim=int(facts.head_dim * share))
    if kind == "gemma3_text":
        every = stated.own("sliding_window_pattern", 6)
        base = stated.own("rope_local_base_freq", 1e4)
        own = replace(own, sliding=_all_but(every, facts.num_layers), local_theta=base)
    elif kind == "olmo3":
        own = replace(own, local_theta=theta)
    plain = {"rope_type": PLAIN, "rope_theta": theta}
    rope = plain if kind in _MLX_PLAIN or not scaling else _mlx_scaling(stated, scaling, plain)
    return rope if isinstance(rope, str) else replace(own, rope=rope)


def _mlx_scaling(
    stated: Stated, given: Mapping[str, Any], plain: dict[str, Any]
) -> dict[str, Any] | str:
    kind = given.get("type") or given.get("rope_type", PLAIN)
    trained = given.get(ORIGINAL)
    if stated.kind == "nemotron" and "type" not in given:
        return "fails without `type` in rope_scaling"
    if stated.kind == "phi3":
        if not {"type", "long_factor"} <= given.keys():
            return "fails without `type` and long_factor in rope_scaling"
        trained, kind = stated.own(ORIGINAL, 4096), "longrope" if kind == "su" else kind
        if kind not in ("longrope", "linear"):
            return plain
    scaled = {**plain, **given, "rope_type": kind}
    match kind:
        case "llama3":
            return {"low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8192, **scaled}
        case "yarn":
            weights = (given.get("mscale", 1), given.get("mscale_all_dim", 0))
            if None in (given["factor"], *weights):
                return "fails: null in rope_scaling"
            steps = max(0.0, temperature(given["factor"]) - 1)
            above, below = (weight * steps + 1 for weight in weights)
            drop = ("mscale", "mscale_all_dim", "truncate")
            rope = {key: value for key, value in scaled.items() if key not in drop}
            return {ORIGINAL: 4096, **rope, "attention_factor": above / below}
        case "longrope":
            if trained is None:
                return f"fails without {ORIGINAL} in rope_scaling"
            factor = longrope_temperature(stated.context / trained, trained)
            long = {"short_factor": given["long_factor"], "attention_factor": factor}
            return {**scaled, **long, ORIGINAL: trained}
    return scaled if kind in TYPES else f"fails: rope_type {kind!r}"


def _all_but(every: int, num_layers: int) -> tuple[int, ...]:
    return tuple(layer for layer in range(num_layers) if (layer + 1) % every)


READERS: Mapping[str, tuple[str, Callable[[Stated], Reading | str]]] = {
    "vllm": ("0.32.0", _vllm),
    "llama.cpp": ("0c1e570", _llama_cpp),
    "mlx": ("mlx-lm 0.32.2", _mlx),
}
"""Release or commit whose source was read, and the reading."""


@dataclass(frozen=True)
class Agreement:
    """Comparison of a program's tables with those of transformers."""

    attention_factor: float
    """The program's attention factor for the longest text."""
    field: str | None = None
    """First key of config.json that the program reads differently; None if the tables agree."""
    difference: float = 0.0
    """Largest relative difference of a frequency or attention factor; 1 for other layers."""
    up_to: int | None = None
    """Longest text in tokens for which the tables differ; None if they differ for all texts."""


def certified(stated: Stated, runtime: str) -> Agreement | str:
    """Compare a program of `READERS` with transformers; return why it fails if it does."""
    try:
        reading = READERS[runtime][1](stated)
        return reading if isinstance(reading, str) else compare(stated, reading)
    except (KeyError, TypeError, ValueError, ArithmeticError, AttributeError, SpecError) as error:
        return f"fails: {type(error).__name__}: {error}"


_LAYERS = {
    "unrotated": "no_rope_layers",
    "sliding": "layer_types",
    "local_theta": "rope_local_base_freq",
    "rotary_dim": "partial_rotary_factor",
}
"""Key of config.json for each field of `Reading` that `rope` does not contain."""


def compare(stated: Stated, theirs: Reading) -> Agreement:
    own = stated.reading
    factor = stated.table(theirs, stated.lengths[-1]).attention_factor
    for name, key in _LAYERS.items():
        if getattr(own, name) != getattr(theirs, name):
            return Agreement(factor, key, 1.0)
    found = _differences(stated, theirs.rope)
    differ = [length for length, difference in found.items() if difference > _AGREEMENT]
    if not differ:
        return Agreement(factor, None, max(found.values()))
    keys = [*own.rope, *(key for key in theirs.rope if key not in own.rope)]
    field = next((key for key in keys if _matters(stated, theirs.rope, key)), "rope_parameters")
    up_to = None if stated.lengths[-1] in differ else differ[-1]
    return Agreement(factor, field, max(found.values()), up_to)


def _matters(stated: Stated, theirs: Mapping[str, Any], key: str) -> bool:
    """Return True if the program's value of this key alone changes transformers' tables."""
    changed = {name: value for name, value in stated.reading.rope.items() if name != key}
    changed |= {key: theirs[key]} if key in theirs else {}
    try:
        return max(_differences(stated, changed).values()) > _AGREEMENT
    except KeyError:
        return True


def _differences(stated: Stated, rope: Mapping[str, Any]) -> dict[int, float]:
    """Return the largest relative difference of the tables by length of texts."""
    theirs, found = replace(stated.reading, rope=rope), {}
    for length in stated.lengths:
        tables = [stated.table(reading, length) for reading in (stated.reading, theirs)]
        one, other = (np.append(table.inv_freq, table.attention_factor) for table in tables)
        largest = np.maximum(np.maximum(one, other), np.finfo(np.float64).tiny)
        found[length] = float(np.max(np.abs(one - other) / largest))
    return found
