"""Student's t by its degrees of freedom.

A catalog asks for a few dozen quantiles some ten thousand times, and scipy takes longer to check
what it is asked than to answer.
"""

from __future__ import annotations

import functools

from scipy import stats


@functools.lru_cache(maxsize=1024)
def student_quantile(share: float, freedom: int) -> float:
    """What a t-distributed number lies below with probability `share`; NaN where there is none."""
    return float(stats.t.ppf(share, freedom))
