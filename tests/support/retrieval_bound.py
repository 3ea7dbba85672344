"""The bound that a RoPE base sets to retrieval: an oracle for the frequency tables of methods."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lce_core.rope import Frequencies


def bound(inv_freq: Frequencies, positions: NDArray[np.int64]) -> Frequencies:
    """B_m = sum_i cos(m * inv_freq[i]) at each relative distance m in `positions`.

    Source: Base of RoPE Bounds Context Length (arXiv:2405.14591), section 4: B_m >= 0 is
    necessary for attending a similar token more than a random one at distance m.
    """
    angles = np.multiply.outer(positions.astype(np.float64), inv_freq)
    return np.asarray(np.cos(angles).sum(axis=-1))


def retrieval_limit(inv_freq: Frequencies, longest: int = 1 << 18) -> int | None:
    """First distance m with B_m < 0, or None if there is none up to `longest`."""
    for start in range(0, longest + 1, 4096):
        negative = np.flatnonzero(
            bound(inv_freq, np.arange(start, min(start + 4096, longest + 1))) < 0
        )
        if negative.size:
            return start + int(negative[0])
    return None
