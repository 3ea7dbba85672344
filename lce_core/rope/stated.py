"""Read the RoPE frequencies that `rope_parameters` of a transformers config.json state.

Older files have the same numbers under `rope_scaling`, `type` and `rope_theta`. The rope types are
those of transformers 5.23; docs/checkpoints.md shows how closely the tables agree in fp32.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lce_core.errors import SpecError
from lce_core.rope import Frequencies, RopeGeometry, RopeTable
from lce_core.rope.architectures import ARCHITECTURES, Architecture

PLAIN = "default"
TYPES = (PLAIN, "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
"""Values of `rope_type` that lce can read. `lce export` writes "longrope" if no other type fits,
because it can express any table whose pairs all rotate."""
ORIGINAL = "original_max_position_embeddings"
"""Key of the trained context in tokens, before RoPE was scaled for a longer one."""
FULL, SLIDING = "full_attention", "sliding_attention"
"""Values of `layer_types`, and keys of settings that differ between layers."""


def stated_parameters(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the rotary settings of layers with full attention, as `rope_parameters`.

    The settings are those that transformers computes with: `rope_scaling` replaces
    `rope_parameters`, and other keys give defaults. Null values are kept, because transformers
    treats null and missing keys differently. Raises SpecError if transformers ignores a value of
    `rope_parameters`, or if settings differ between layers with full attention.
    """
    architecture = ARCHITECTURES.get(str(config.get("model_type")), Architecture())
    config = {**architecture.defaults, **config}
    newer, older = _entry(config, "rope_parameters"), _entry(config, "rope_scaling")
    given, by_kind = older or newer, architecture.local_theta is not None
    if by_kind:
        # Settings for each kind of layers; `rope_scaling` changes those of full layers.
        # transformers ignores `truncate` among them and reads it beside the kinds of layers.
        full = newer.get(FULL) or {}
        given = {**(full or {"rope_type": PLAIN}), **older}
        given["truncate"] = newer.get("truncate", True)
        elsewhere = (FULL, SLIDING, "truncate")
        newer = {key: value for key, value in (full or newer).items() if key not in elsewhere}
    stated = {key: value for key, value in given.items() if key != "type"}
    stated.setdefault("rope_type", given.get("type", PLAIN))
    stated.setdefault("rope_theta", config.get("rope_theta", 10_000.0))
    if (share := config.get("partial_rotary_factor")) is not None:
        stated.setdefault("partial_rotary_factor", share)
    if ORIGINAL in config and not by_kind:
        stated[ORIGINAL] = config[ORIGINAL]  # transformers prefers the top-level key
    if any(isinstance(value, Mapping) for value in stated.values()):
        raise SpecError(
            f"{where}: {rope_key(config)}",
            "settings for each kind of layers",
            "one RoPE table for all layers with full attention",
            "name another model",
        )
    for key, value in newer.items() if given is not newer else ():
        used = stated.get("rope_type" if key == "type" else key)
        if value not in (used, PLAIN):
            raise SpecError(
                f"{where}: rope_parameters",
                f"{key} {value!r}, which transformers ignores; it computes with {used!r}",
                "each rotary setting stated once",
                "write all of them into rope_parameters, for Gemma 3 and OLMo 3 into its"
                " full_attention, and delete rope_scaling",
            )
    if architecture.partial_rotary_factor is None and stated["rope_type"] == PLAIN:
        stated.pop("partial_rotary_factor", None)
    return stated


def rope_key(config: Mapping[str, Any]) -> str:
    """Return the key of config.json whose rotary settings transformers uses."""
    return "rope_scaling" if config.get("rope_scaling") else "rope_parameters"


def _entry(config: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    given = config.get(key) or {}
    return given if isinstance(given, Mapping) else {"rope_type": given}


def stated_table(
    parameters: Mapping[str, Any], geometry: RopeGeometry, context: int, length: int
) -> RopeTable:
    """Return the RoPE table that transformers uses for these settings and a text of this length.

    `geometry`'s theta and scaling are ignored; `context` is the file's `max_position_embeddings`.
    Raises KeyError, TypeError, ValueError or ArithmeticError if a number is missing or unusable.
    """
    theta = float(parameters["rope_theta"])
    geometry = replace(geometry, theta=theta, scaling=None)
    own = geometry.inv_freq()
    trained = parameters.get(ORIGINAL, context)
    match parameters["rope_type"]:
        case "linear":
            return RopeTable(own / parameters["factor"])
        case "dynamic":
            factor, dim = float(parameters["factor"]), geometry.rotary_dim
            scale = factor * max(length, context) / context - (factor - 1)
            return RopeTable(geometry.inv_freq(theta * scale ** (dim / (dim - 2))))
        case "llama3":
            low, high = float(parameters["low_freq_factor"]), float(parameters["high_freq_factor"])
            turns = trained * own / (2 * np.pi)
            kept = np.clip((turns - low) / (high - low), 0, 1)
            return RopeTable(kept * own + (1 - kept) * own / parameters["factor"])
        case "yarn":
            return _yarn(parameters, geometry, context, trained)
        case "longrope":
            factors = parameters["long_factor" if length > trained else "short_factor"]
            attention = parameters.get("attention_factor")
            if attention is None:
                stated = parameters.get("factor")
                factor = context / trained if stated is None else float(stated)
                attention = longrope_temperature(factor, trained)
            return RopeTable(own / np.asarray(factors, dtype=np.float64), float(attention))
        case "proportional":
            # This share counts frequencies that are not 0. The heads stay rotated as a whole.
            rotated = int(parameters.get("partial_rotary_factor", 1.0) * geometry.rotary_dim // 2)
            kept = np.arange(geometry.num_pairs) < rotated
            return RopeTable(kept * own / float(parameters.get("factor", 1.0)))
    return RopeTable(own)


def _yarn(
    parameters: Mapping[str, Any], geometry: RopeGeometry, context: int, trained: int
) -> RopeTable:
    stated = parameters["factor"]
    scale = context / trained if stated is None else float(stated)
    attention = parameters.get("attention_factor")
    mscale, mscale_all_dim = parameters.get("mscale"), parameters.get("mscale_all_dim")
    if attention is None and scale > 1:
        # DeepSeek's two weights of the attention temperature. Like transformers, use them only if
        # both are present and not 0.
        weights = (mscale, mscale_all_dim) if mscale and mscale_all_dim else (1, 0)
        above, below = (weight * (temperature(scale) - 1) + 1 for weight in weights)
        attention = above / below
    slow = index_ramp(
        replace(geometry, trained_context=int(trained)),
        float(parameters.get("beta_fast") or 32),
        float(parameters.get("beta_slow") or 1),
        truncate=bool(parameters.get("truncate", True)),
    )
    own = geometry.inv_freq()
    return RopeTable(slow * own / scale + (1 - slow) * own, float(attention or 1))


def ramp_ends(
    geometry: RopeGeometry, beta_fast: float, beta_slow: float, *, truncate: bool
) -> tuple[float, float]:
    """Return the indices of the pairs between which YaRN's authors' code interpolates partly.

    These pairs make `beta_fast` and `beta_slow` rotations within the trained context.
    """
    low, high = geometry.pair_with(beta_fast), geometry.pair_with(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    # The limits are clamped to dimensions, not pairs, as in the reference.
    low, high = max(low, 0), min(high, geometry.rotary_dim - 1)
    return low, high + 0.001 if low == high else high


def index_ramp(
    geometry: RopeGeometry, beta_fast: float, beta_slow: float, *, truncate: bool
) -> Frequencies:
    """Return for each pair how far it is interpolated (pairs,), linear in its index."""
    low, high = ramp_ends(geometry, beta_fast, beta_slow, truncate=truncate)
    return np.asarray(np.clip((np.arange(geometry.num_pairs) - low) / (high - low), 0, 1))


def temperature(scale: float) -> float:
    """Return YaRN's factor of both queries and keys, sqrt(1 / t) in the paper's section 3.3."""
    return 0.1 * math.log(scale) + 1


def longrope_temperature(scale: float, trained: int) -> float:
    """Return LongRoPE's factor of both queries and keys (arXiv:2402.13753), 1 up to scale 1."""
    return math.sqrt(1 + math.log(scale) / math.log(trained)) if scale > 1 else 1.0
