"""Read and write RoPE frequencies as `rope_parameters` of a transformers config.json.

`rope_parameters` names a `rope_type` and the numbers that this type needs. `stated_table` computes
the RoPE table of such an entry in float64. `statement` does the reverse for `lce export`: it finds
an entry for a given table. Older files have the same numbers under `rope_scaling`, `type` and
`rope_theta`.

This module does not import torch, so that `lce plan` can quickly read the configurations of
published weights.

Source: the rope types of transformers 5.23. docs/checkpoints.md shows how closely the tables agree
with transformers in fp32.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lce_core.errors import SpecError
from lce_core.methods import METHODS, Method
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

PLAIN = "default"
TYPES = (PLAIN, "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")
"""Values of `rope_type` that lce can read. `statement` writes "longrope" if no other type fits,
because it can express any table whose pairs all rotate."""
_TRAINED = "original_max_position_embeddings"
"""Key of the trained context in tokens, before RoPE was scaled for a longer one."""

_DIGITS = 12
"""Significant digits to which `statement` rounds a base or factor that it derives from a table."""
_AGREEMENT = 1e-9
"""Largest allowed relative difference between the table of a written entry and the method's
table."""


def stated_parameters(config: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return the rotary settings of config.json, older files included, as `rope_parameters`.

    Null values are kept, because transformers treats null and missing keys differently.

    Args:
      config: parsed config.json.
      where: name of the file, for errors.

    Raises:
      SpecError: if `rope_type` is not one of `TYPES`.
    """
    # As in transformers, rope_scaling takes precedence. Files with both keys have equal values in
    # both.
    given = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(given, Mapping):
        given = {"rope_type": given}
    stated = {key: value for key, value in given.items() if key != "type"}
    stated.setdefault("rope_type", given.get("type", PLAIN))
    stated.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    if (share := config.get("partial_rotary_factor")) is not None:
        stated.setdefault("partial_rotary_factor", share)
    if _TRAINED in config:
        stated[_TRAINED] = config[_TRAINED]  # transformers prefers the top-level key
    if stated["rope_type"] not in TYPES:
        raise SpecError(
            f"{where}: rope_type",
            repr(stated["rope_type"]),
            f"one of {', '.join(TYPES)}",
            "remove `rope_type` (or `type`) there if the study's method computes these frequencies",
        )
    return stated


def stated_table(
    parameters: Mapping[str, Any], geometry: RopeGeometry, context: int, length: int
) -> RopeTable:
    """Return the RoPE table that transformers uses for these settings and a text of this length.

    Args:
      parameters: result of `stated_parameters`.
      geometry: geometry of the base model; its theta is ignored.
      context: `max_position_embeddings` of the configuration, in tokens.
      length: length of the text in tokens.

    Raises:
      KeyError, TypeError, ValueError, ArithmeticError: if a number is missing or cannot be used.
    """
    theta = float(parameters["rope_theta"])
    own = geometry.inv_freq(theta)
    trained = parameters.get(_TRAINED, context)
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
            return _yarn(parameters, geometry, theta, context, trained)
        case "longrope":
            factors = parameters["long_factor" if length > trained else "short_factor"]
            attention = parameters.get("attention_factor")
            if attention is None:
                factor = _stated_factor(parameters.get("factor"), context, trained)
                # LongRoPE (arXiv:2402.13753) sharpens attention by the scale it extends to.
                attention = math.sqrt(1 + math.log(factor) / math.log(trained)) if factor > 1 else 1
            return RopeTable(own / np.asarray(factors, dtype=np.float64), float(attention))
        case "proportional":
            # This share counts frequencies that are not 0. The heads stay rotated as a whole.
            rotated = int(parameters.get("partial_rotary_factor", 1.0) * geometry.rotary_dim // 2)
            kept = np.arange(geometry.num_pairs) < rotated
            return RopeTable(kept * own / float(parameters.get("factor", 1.0)))
    return RopeTable(own)


def statement(
    method: Method,
    geometry: RopeGeometry,
    lengths: ContextLengths,
    table: RopeTable,
    context: int,
) -> dict[str, Any]:
    """Return the simplest `rope_parameters` that reproduce `table`, which most programs can read.

    Args:
      method: method that computed the table; it may suggest an entry (`Method.stock_rope`).
      geometry: geometry of the base model.
      lengths: lengths for which the method computed the table.
      table: the table to reproduce, with `inv_freq` of shape (pairs,).
      context: `max_position_embeddings` of the configuration, in tokens.

    Raises:
      SpecError: if the table has pairs without rotation, and no `rope_type` can express them.
    """
    found = next(
        (
            parameters
            for parameters in _forms(method, geometry, lengths, table, context)
            if agrees(stated_table(parameters, geometry, context, context), table, _AGREEMENT)
        ),
        None,
    )
    if found is None:
        raise SpecError(
            f"{method.plugin_name}.rope_table",
            f"{np.sum(table.inv_freq == 0)} of {geometry.num_pairs} pairs without rotation",
            "a frequency above 0 for every pair. Heads that rotate as a whole, without an attention"
            " factor, may also have the frequencies of one base, the lowest of them set to 0",
            "evaluate it with `lce run`, which supports it",
        )
    if geometry.rotary_dim < geometry.head_dim:
        found["partial_rotary_factor"] = geometry.rotary_dim / geometry.head_dim
    return found


def _forms(
    method: Method,
    geometry: RopeGeometry,
    lengths: ContextLengths,
    table: RopeTable,
    context: int,
) -> Iterator[dict[str, Any]]:
    own, dim = geometry.inv_freq(), geometry.rotary_dim
    if not table.inv_freq.all():
        yield from _proportional(geometry, table)
        return
    if table.attention_factor == 1.0:
        yield {"rope_type": PLAIN, "rope_theta": geometry.theta}
        if dim > 2:
            base = _rounded(table.inv_freq[-1] ** (-dim / (dim - 2)))
            yield {"rope_type": PLAIN, "rope_theta": base}
        factor = _rounded(own[0] / table.inv_freq[0])
        yield {"rope_type": "linear", "rope_theta": geometry.theta, "factor": factor}
    if known := method.stock_rope(lengths):
        yield {"rope_theta": geometry.theta, **known}
    factors = [float(factor) for factor in own / table.inv_freq]
    longrope = {
        "rope_type": "longrope",
        "rope_theta": geometry.theta,
        # Other programs derive an attention factor from the ratio of the two contexts, here 1.
        "factor": 1.0,
        "original_max_position_embeddings": context,
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": table.attention_factor,
    }
    if table.attention_factor != 1.0:
        # vLLM reads the factor under these names and uses 1 without them. transformers warns that
        # it does not know them.
        longrope |= {f"{kind}_mscale": table.attention_factor for kind in ("short", "long")}
    yield longrope


def _proportional(geometry: RopeGeometry, table: RopeTable) -> Iterator[dict[str, Any]]:
    """Yield entries of type "proportional", which sets the lowest frequencies to 0."""
    kept = int(np.count_nonzero(table.inv_freq))
    if table.attention_factor != 1.0 or geometry.rotary_dim < geometry.head_dim:
        return
    # transformers rounds share * head_dim / 2 down, so a share just below its fraction is raised.
    share = kept / geometry.num_pairs
    if int(share * geometry.rotary_dim // 2) < kept:
        share = math.nextafter(share, 1)
    thetas = [geometry.theta]
    if kept > 1:
        last = kept - 1
        thetas.append(_rounded(table.inv_freq[last] ** (-geometry.num_pairs / last)))
    for theta in thetas:
        yield {"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": share}


def _yarn(
    parameters: Mapping[str, Any], geometry: RopeGeometry, theta: float, context: int, trained: int
) -> RopeTable:
    scale = _stated_factor(parameters["factor"], context, trained)
    attention = parameters.get("attention_factor")
    mscale, mscale_all_dim = parameters.get("mscale"), parameters.get("mscale_all_dim")
    # DeepSeek's two weights of the attention temperature. Like transformers, use them only if both
    # are present and not 0.
    if attention is None and mscale and mscale_all_dim and scale > 1:
        attention = (0.1 * mscale * math.log(scale) + 1) / (
            0.1 * mscale_all_dim * math.log(scale) + 1
        )
    method = METHODS.parse(
        {
            "name": "yarn",
            "scale": scale,
            "beta_fast": float(parameters.get("beta_fast") or 32),
            "beta_slow": float(parameters.get("beta_slow") or 1),
            "truncate": bool(parameters.get("truncate", True)),
            "attention_factor": attention,
        },
        "rope_parameters",
    )
    context = int(trained)
    seen = replace(geometry, theta=theta, trained_context=context)
    return method.rope_table(seen, ContextLengths(context, context, context))


def _stated_factor(factor: Any, context: int, trained: int) -> float:
    """Return `factor`; if it is None, context / trained, as in transformers."""
    return context / trained if factor is None else float(factor)


def agrees(one: RopeTable, other: RopeTable, tolerance: float) -> bool:
    """Return True if frequencies and attention factors differ by at most a relative tolerance."""
    if one.inv_freq.shape != other.inv_freq.shape:
        return False
    pairs = np.allclose(one.inv_freq, other.inv_freq, rtol=tolerance, atol=0)
    return pairs and bool(
        np.isclose(one.attention_factor, other.attention_factor, rtol=tolerance, atol=0)
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
