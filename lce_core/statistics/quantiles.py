"""Quantiles of Student's t, cached: scipy spends longer on checking arguments than on computing."""

from __future__ import annotations

import functools

from scipy import stats


@functools.lru_cache(maxsize=1024)
def student_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t at probability `share`; NaN for 0 degrees of freedom."""
    return float(stats.t.ppf(share, freedom))
