"""Several comparisons at once: p-values that keep the chance of any false finding."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lce_core.errors import DataError
from lce_core.statistics._checks import finite


def holm(p_values: ArrayLike) -> NDArray[np.float64]:
    """Adjusted p-values of a family (n,), in the same order.

    Whoever calls those up to 0.05 differences is wrong about one or more of the family in at most
    5 % of studies, however the comparisons depend on each other.

    Raises:
      DataError: no p-values, or one outside 0 to 1.

    Source: Holm 1979 (Scandinavian Journal of Statistics 6, 65-70).
    """
    raw = finite("holm", p_values)
    if raw.min() < 0 or raw.max() > 1:
        raise DataError(
            "holm",
            f"{raw.min():g} to {raw.max():g}",
            "p-values, 0 to 1",
            "give the raw p-values of the comparisons",
        )
    order = np.argsort(raw, kind="stable")
    steps = raw[order] * np.arange(raw.size, 0, -1)
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    return adjusted
