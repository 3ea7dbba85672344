"""Input checks of this package: finite numbers, one cluster per value, rounding noise removed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lce_core.errors import DataError


def finite(where: str, values: ArrayLike) -> NDArray[np.float64]:
    """Return the values as a float64 array (n,).

    Raises:
      DataError: if the values are empty, not one-dimensional or not all finite.
    """
    data = np.asarray(values, dtype=np.float64)
    if data.ndim != 1 or not data.size or not np.isfinite(data).all():
        raise DataError(
            where,
            f"values of shape {data.shape}, {int((~np.isfinite(data)).sum())} of them not finite",
            "a list of at least one value, all finite",
            "check the samples",
        )
    return data


def same_length(where: str, first: Sequence[object], second: Sequence[object]) -> None:
    """Raise DataError unless both sequences have the same length."""
    if len(first) != len(second):
        raise DataError(
            where,
            f"{len(first)} and {len(second)} entries",
            "an entry of each for every prompt",
            "match them by sample number first",
        )


def cluster_numbers(
    where: str, clusters: Sequence[Hashable] | None, values: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Number the clusters from 0; return each value's number (n,). None gives each value its own.

    Raises:
      DataError: if the numbers of clusters and values differ.
    """
    if clusters is None:
        return np.arange(values.size)
    same_length(where, clusters, values.tolist())
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(one, len(numbers)) for one in clusters], dtype=np.int64)


def settled(values: NDArray[np.float64], *scales: NDArray[np.float64]) -> NDArray[np.float64]:
    """Round the values to 12 digits of the largest number that they were computed from.

    Values that differ only by rounding errors become equal, or 0.
    """
    largest = max(float(np.abs(scale).max()) for scale in scales)
    return np.round(values / largest, 12) * largest if largest else values
