"""Correction for multiple comparisons: p-values that control the chance of any false finding."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lce_core.statistics._checks import finite


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Return the Holm-adjusted p-values of a family of comparisons (n,), in the same order.

    If every adjusted p-value up to 0.05 counts as a difference, at most 5 % of studies contain a
    false finding. Source: Holm 1979 (Scandinavian Journal of Statistics 6, 65-70).
    """
    raw = finite("holm", p_values)
    assert ((raw >= 0) & (raw <= 1)).all(), f"p-values from {raw.min():g} to {raw.max():g}"
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(raw.size, 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
