"""Write RoPE frequencies as `rope_parameters` of a transformers config.json, for `lce export`.

`statement` finds an entry for a given table; `lce_core.rope.stated` does the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from lce_core.errors import SpecError
from lce_core.methods import Method
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.stated import PLAIN, stated_table

_DIGITS = 12
"""Significant digits to which `statement` rounds a base or factor that it derives from a table."""
_AGREEMENT = 1e-9
"""Largest allowed relative difference between a written entry's table and the method's."""


def statement(
    method: Method,
    geometry: RopeGeometry,
    lengths: ContextLengths,
    table: RopeTable,
    context: int,
    *,
    only_longrope: bool = False,
) -> dict[str, Any]:
    """Return the simplest `rope_parameters` that reproduce `table`, which most programs can read.

    The method that computed the table may suggest an entry (`Method.stock_rope`). `context` is
    `max_position_embeddings`, in tokens. `only_longrope` is `Architecture.only_longrope`.
    """
    found = next(
        (
            parameters
            for parameters in _forms(method, geometry, lengths, table, context)
            if not (only_longrope and parameters["rope_type"] not in (PLAIN, "longrope"))
            and agrees(stated_table(parameters, geometry, context, context), table, _AGREEMENT)
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
    own, dim = replace(geometry, scaling=None).inv_freq(), geometry.rotary_dim
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


def agrees(one: RopeTable, other: RopeTable, tolerance: float) -> bool:
    if one.inv_freq.shape != other.inv_freq.shape:
        return False
    pairs = np.allclose(one.inv_freq, other.inv_freq, rtol=tolerance, atol=0)
    return pairs and bool(
        np.isclose(one.attention_factor, other.attention_factor, rtol=tolerance, atol=0)
    )


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
