"""Quantiles of Student's t distribution, cached by degrees of freedom.

A catalog needs a few dozen distinct quantiles about ten thousand times, and scipy spends longer on
checking its arguments than on the quantile.
"""

from __future__ import annotations

import functools

from scipy import stats


@functools.lru_cache(maxsize=1024)
def student_quantile(share: float, freedom: int) -> float:
    """Return the quantile of Student's t at probability `share`; NaN for 0 degrees of freedom."""
    return float(stats.t.ppf(share, freedom))
