"""Ramp and temperature of YaRN, as its authors' code and transformers compute them.

Source: Peng et al. 2023, arXiv:2309.00071, sections 3.2 (ramp) and 3.3 (temperature).
"""

from __future__ import annotations

import math

import numpy as np

from lce_core.rope import Frequencies, RopeGeometry


def index_ramp(
    geometry: RopeGeometry, beta_fast: float, beta_slow: float, *, truncate: bool
) -> Frequencies:
    """Return for each pair how far it is interpolated (pairs,), linear in the pair's index.

    Pairs that make at least `beta_fast` rotations within the trained context get 0, those with at
    most `beta_slow` get 1. `truncate` rounds both ends of the ramp outwards to whole indices.
    """
    low, high = geometry.pair_with(beta_fast), geometry.pair_with(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    # The limits are clamped to dimensions, not pairs, as in the reference.
    low, high = max(low, 0), min(high, geometry.rotary_dim - 1)
    if low == high:
        high += 0.001
    return np.asarray(np.clip((np.arange(geometry.num_pairs) - low) / (high - low), 0, 1))


def temperature(scale: float) -> float:
    """Return YaRN's factor of both queries and keys, sqrt(1 / t) in the paper's section 3.3."""
    return 0.1 * math.log(scale) + 1
