"""Difference in NLL (nats per token) between each method and the frozen base model, by position.

The losses of two methods on the same text rise and fall together. The paired difference in a bin of
positions therefore has a much narrower interval than the difference of two separate means.
Positions are grouped into bands that start at 0, 1, 2, 4, ... times the trained context. Intervals
are bootstrapped over bins of positions: they cover the tokens that were read, not other texts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.contents import Row, select
from lce_core.statistics.estimates import Estimate, bootstrap_mean

BASE = "none"


@dataclass(frozen=True)
class Band:
    """A half-open range of positions in tokens: `begin` is included, `end` is not."""

    begin: int
    end: int


@dataclass(frozen=True)
class Difference:
    """Mean NLL of a method minus that of the base model, in nats per token; negative is better."""

    method: str
    frozen: bool
    by_band: tuple[Estimate | None, ...]
    """One estimate per band, in the order of the bands; None where no bin has both values."""


def bands(trained: int | None, length: int) -> tuple[Band, ...]:
    """Return the bands of positions: [0, trained), [trained, 2 * trained), ... up to `length`.

    Args:
      trained: trained context of the base model in tokens; None if unknown: returns one band.
      length: evaluated length in tokens.
    """
    edges = [0]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1] or trained or length, length))
    return tuple(Band(begin, end) for begin, end in itertools.pairwise(edges))


def differences(rows: Sequence[Row], found: Sequence[Band]) -> list[Difference]:
    """Compare every other method with the base model, bin by bin.

    Returns an empty list if the base model has no values.

    Args:
      rows: rows of the view `nll_by_position` for one base model, task and length.
      found: bands of positions; a bin belongs to the band of its first position.
    """
    base = _bins(select(rows, method=BASE, frozen=True))
    told = []
    for method, frozen in dict.fromkeys((row["method"], row["frozen"]) for row in rows):
        bins = _bins(select(rows, method=method, frozen=frozen))
        gaps = {at: nll - base[at] for at, nll in bins.items() if at in base}
        if gaps and (method, frozen) != (BASE, True):
            told.append(Difference(method, frozen, tuple(_mean(gaps, band) for band in found)))
    return told


def band_label(band: Band) -> str:
    """Return the column header of a band, such as "1,024 to 2,048"."""
    return f"{band.begin:,} to {band.end:,}" if band.begin else f"to {band.end:,}"


def _bins(rows: Sequence[Row]) -> dict[int, float]:
    return {row["position_bin"]: row["nll"] for row in rows if row["nll"] is not None}


def _mean(gaps: dict[int, float], band: Band) -> Estimate | None:
    inside = [gap for position, gap in gaps.items() if band.begin <= position < band.end]
    return bootstrap_mean(inside) if inside else None
