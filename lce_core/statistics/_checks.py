"""Input checks of this package: finite numbers, one cluster per value."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def finite(where: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return the values as a float64 array (n,); assert that n > 0 and that all are finite."""
    data = np.asarray(values, dtype=np.float64)
    assert data.ndim == 1, f"{where}: values of shape {data.shape}"
    assert data.size, f"{where}: no value"
    assert np.isfinite(data).all(), f"{where}: NaN or infinite values"
    return data


def same_length(where: str, first: Sequence[object], second: Sequence[object]) -> None:
    assert len(first) == len(second), f"{where}: {len(first)} and {len(second)} entries"


def cluster_numbers(
    where: str, clusters: Sequence[Hashable] | None, values: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Return the number of each value's cluster (n,), from 0 in order of first occurrence.

    Without clusters each value gets its own number.
    """
    if clusters is None:
        return np.arange(values.size)
    same_length(where, clusters, values.tolist())
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in clusters], dtype=np.int64)
