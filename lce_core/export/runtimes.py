"""Find out which RoPE tables other programs compute from a config.json, for `lce certify`.

A reading states a program's settings in transformers' words, so that `stated_table` computes the
program's table. Each follows the program's source; docs/runtimes.md compares readings with programs
that ran. Programs are assumed to serve the whole context, `max_position_embeddings`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.errors import DataError, SpecError
from lce_core.models import read_config_json
from lce_core.models.hub_model.facts import Facts, checked_facts, language_model_of
from lce_core.rope import RopeTable
from lce_core.rope.architectures import ARCHITECTURES
from lce_core.rope.stated import (
    FULL,
    ORIGINAL,
    PLAIN,
    SLIDING,
    TYPES,
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
    """Read the folder's config.json as transformers does.

    Raises:
      SpecError: if lce does not know the model type or rope_type.
      DataError: if the file cannot be read, or a value is missing or unusable.
    """
    file, config = folder / "config.json", language_model_of(read_config_json(folder))
    architecture = ARCHITECTURES.get(str(config.get("model_type")))
    rope = stated_parameters(config, str(file))
    if rope["rope_type"] not in TYPES:
        expected = f"one of {', '.join(TYPES)}"
        raise SpecError(f"{file}: rope_type", repr(rope["rope_type"]), expected, "correct it")
    # Facts of the model before scaling, which also takes what methods cannot extend.
    plain: dict[str, Any] = {"rope_type": PLAIN, "rope_theta": rope["rope_theta"]}
    if architecture and architecture.partial_rotary_factor and "partial_rotary_factor" in rope:
        plain["partial_rotary_factor"] = rope["partial_rotary_factor"]
    if architecture and architecture.local_theta is not None:
        given = config.get("rope_parameters")
        local = given.get(SLIDING) if isinstance(given, Mapping) else None
        plain = {FULL: plain, SLIDING: local or {}}
    context = {**(architecture.defaults if architecture else {}), **config}.get(
        "max_position_embeddings"
    )
    unscaled = {**config, "rope_scaling": None, "rope_parameters": plain}
    facts = checked_facts(unscaled, file, context if type(context) is int else None)
    local, own = facts.local, facts.geometry
    theta = local.theta if local else None
    sliding = local.layers if local and theta is not None else ()
    stated = Stated(config, facts, Reading(rope, own.rotary_dim, sliding, theta, own.unrotated))
    try:
        for length in stated.lengths:
            stated.table(stated.reading, length)
    except (KeyError, TypeError, ValueError, ArithmeticError, SpecError) as error:
        raise DataError(
            f"{file}: rope_parameters",
            f"{dict(rope)}, which cannot be read ({type(error).__name__}: {error})",
            f"valid values for all keys that rope_type {rope['rope_type']!r} needs",
            "copy or download the model again",
        ) from error
    return stated


_VLLM_CODE = frozenset(
    ("cohere", "gemma", "gemma3_text", "glm4", "gpt_oss", "granite", "llama", "mistral", "mixtral",
     "nemotron", "phi3", "qwen2", "qwen3", "qwen3_moe", "stablelm")
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
        factor = rope.get(f"{size}_mscale")
        rope |= {"short_factor": rope[f"{size}_factor"], "long_factor": rope[f"{size}_factor"]}
        rope["attention_factor"] = _by_contexts(context, trained) if factor is None else factor
    if kind in ("linear", "yarn") and type(rope.get("factor")) is not float:
        if kind == "linear" or rope.get("factor") is None:
            return f"fails: factor {rope.get('factor')!r} is no floating-point number"
    share = rope.get("partial_rotary_factor") or stated.own("partial_rotary_factor")
    ignored = ARCHITECTURES[stated.kind].partial_rotary_factor is None and kind != "proportional"
    if ignored and share is not None:
        own = replace(own, rotary_dim=int(own.rotary_dim * share))
    return replace(own, rope=rope)


def _by_contexts(context: int, trained: int) -> float:
    scale = context / trained
    return math.sqrt(1 + math.log(scale) / math.log(trained)) if scale > 1 else 1.0


_LLAMA_CODE = frozenset(("granite", "llama", "mistral", "mixtral", "smollm3"))
"""Model types that llama.cpp's converter treats as Llama, with a table for llama3's scaling."""
_NO_SCALING = {"gemma": None, "glm": 0.5, "phi": math.nan, "stablelm": math.nan}
"""Model types whose base and scaling the converter does not write, with the default share of
rotated elements; nan if the key is required."""


def _llama_cpp(stated: Stated) -> Reading | str:
    """Source: conversion/*.py, src/llama-context.cpp, src/models/*.cpp, ggml_rope_ext."""
    config, kind, facts = stated.config, stated.kind, stated.facts
    given = dict(config.get("rope_parameters", config.get("rope_scaling")) or {})
    nested = FULL in given or SLIDING in given
    entry = given.get(FULL, given)
    if not nested:
        keys = ("rope_theta", "partial_rotary_factor", ORIGINAL)
        entry = {key: config[key] for key in keys if config.get(key) is not None} | entry
        entry.setdefault("rope_type", entry.get("type"))
    rope: dict[str, Any] = {"rope_type": PLAIN, "rope_theta": entry.get("rope_theta", 1e4)}
    share, scaling, factor = (
        entry.get(key) for key in ("partial_rotary_factor", "rope_type", "factor")
    )
    own = replace(stated.reading, rotary_dim=facts.head_dim, rope=rope)
    if kind == "helium":
        return "has no such architecture"
    default = {**_NO_SCALING, "glm4": 0.5, "nemotron": math.nan, "phi3": 1.0}.get(kind)
    if default is not None:
        share = default if share is None else share
        if math.isnan(share):
            return "fails without partial_rotary_factor at the top level or in rope_parameters"
        own = replace(own, rotary_dim=int(share * facts.hidden_size) // facts.num_heads)
    if kind == "smollm3":
        unrotated = tuple(layer for layer in range(facts.num_layers) if (layer + 1) % 4 == 0)
        own = replace(own, unrotated=unrotated)
    if kind == "gemma3_text":
        rope["rope_theta"] = entry.get("rope_theta", 1e6)
        # The file's layer_types are not converted.
        own = replace(own, sliding=_all_but(6, facts.num_layers))
    if own.local_theta is not None:
        older = rope["rope_theta"] if kind == "olmo3" else 1e4
        local = (given.get(SLIDING) or {}).get(
            "rope_theta", None if nested else config.get("rope_local_base_freq")
        )
        own = replace(own, local_theta=older if local is None else local)
    if kind in _NO_SCALING:
        rope["rope_theta"] = 1e4
    elif kind == "nemotron":
        rope |= {} if factor is None else {"rope_type": "linear", "factor": factor}
    elif kind == "phi3":
        return _phi3_of_llama_cpp(stated, own, entry)
    elif kind != "cohere" and scaling == "linear" and factor is not None:
        rope |= {"rope_type": "linear", "factor": factor}
    elif kind != "cohere" and scaling == "yarn" and factor is not None:
        if ORIGINAL not in entry:
            return f"fails without {ORIGINAL}"
        # Its loader ignores attention_factor and betas, although the converter writes them.
        rope |= {"rope_type": "yarn", "factor": factor, ORIGINAL: entry[ORIGINAL]}
    elif scaling == "llama3" and kind in _LLAMA_CODE:
        default_values = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        rope |= {**default_values, ORIGINAL: 8192, **entry}
    return own


def _phi3_of_llama_cpp(stated: Stated, own: Reading, entry: Mapping[str, Any]) -> Reading | str:
    trained = entry.get(ORIGINAL)
    if trained is None:
        return f"fails without {ORIGINAL}"
    if not entry.get("long_factor"):
        return own
    if entry["rope_type"] not in ("su", "longrope"):
        return f"fails: rope_type {entry['rope_type']}"
    size = "long_factor" if stated.context > trained else "short_factor"
    rope = {**own.rope, "rope_type": "longrope", "short_factor": entry[size]}
    rope |= {"long_factor": entry[size], "attention_factor": _by_contexts(stated.context, trained)}
    return replace(own, rope=rope)


_MLX_THETA: Mapping[str, float | None] = {
    "cohere": 8e6, "gemma": 1e4, "gemma3_text": 1e6, "glm": 1e4, "glm4": None, "gpt_oss": 1.5e5,
    "granite": None, "helium": None, "llama": 1e4, "mistral": 1e4, "mixtral": 1e6, "nemotron": 1e4,
    "olmo2": 1e4, "olmo3": None, "phi": 1e4, "phi3": 1e4, "qwen2": 1e6, "qwen3": None,
    "qwen3_moe": None, "smollm3": 1e4, "stablelm": None,
}  # fmt: skip
"""MLX's RoPE base for each model type if config.json has no `rope_theta`; None: it is required."""
_MLX_PLAIN = ("cohere", "gemma", "glm", "glm4", "helium", "mixtral", "phi", "qwen3_moe", "stablelm")
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
            factor = _by_contexts(stated.context, trained)
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
    """How a program's tables differ from transformers'."""

    field: str | None = None
    """First key of config.json that the program reads differently; None if the tables agree."""
    difference: float = 0.0
    """Largest relative difference of a frequency or attention factor; 1 for other layers."""
    attention_factor: float = 1.0
    """The program's attention factor for the longest text."""


def compare(stated: Stated, theirs: Reading) -> Agreement:
    """Compare a program's reading with transformers' for all lengths of texts."""
    own = stated.reading
    factor = stated.table(theirs, stated.lengths[-1]).attention_factor
    for key, names in (
        ("unrotated", "no_rope_layers"),
        ("sliding", "layer_types"),
        ("local_theta", "rope_local_base_freq"),
        ("rotary_dim", "partial_rotary_factor"),
    ):
        if getattr(own, key) != getattr(theirs, key):
            return Agreement(names, 1.0, factor)
    largest = _difference(stated, theirs.rope)
    if largest <= _AGREEMENT:
        return Agreement(None, largest, factor)
    keys = [*own.rope, *(key for key in theirs.rope if key not in own.rope)]
    found = (key for key in keys if _matters(stated, theirs.rope, key))
    return Agreement(next(found, "rope_parameters"), largest, factor)


def _matters(stated: Stated, theirs: Mapping[str, Any], key: str) -> bool:
    """Return True if the program's value of this key alone changes transformers' tables."""
    changed = {name: value for name, value in stated.reading.rope.items() if name != key}
    changed |= {key: theirs[key]} if key in theirs else {}
    try:
        return _difference(stated, changed) > _AGREEMENT
    except KeyError:
        return True


def _difference(stated: Stated, rope: Mapping[str, Any]) -> float:
    return max(_differences(stated, replace(stated.reading, rope=rope)))


def _differences(stated: Stated, theirs: Reading) -> Iterator[float]:
    for length in stated.lengths:
        one, other = (stated.table(reading, length) for reading in (stated.reading, theirs))
        for ours, found in (
            (one.inv_freq, other.inv_freq),
            (one.attention_factor, other.attention_factor),
        ):
            largest = np.maximum(np.maximum(ours, found), np.finfo(np.float64).tiny)
            yield float(np.max(np.abs(ours - found) / largest))
