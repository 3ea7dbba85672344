"""How much each method gains on the untouched base model at the same tokens, in nats.

Losses of two methods over the same text rise and fall together, so that the difference of a bin of
positions says much more than two means with an interval each. Positions are told apart by how many
times the trained context they lie in: up to it, up to twice, four times, ... it. Intervals are by
bootstrap over bins: they cover the tokens that were read, and another text is another question.
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
    """Positions from `begin` up to `end`, in tokens; `end` is not of it."""

    begin: int
    end: int


@dataclass(frozen=True)
class Difference:
    """A method's NLL less the base model's, mean over bins of positions; below 0 is better."""

    method: str
    frozen: bool
    by_band: tuple[Estimate | None, ...]
    """In the order of `bands`; None where the two share no bin."""


def bands(trained: int | None, length: int) -> tuple[Band, ...]:
    """Positions within the trained context, from it to twice it, from there to four times, ...

    Args:
      trained: tokens of the base model's trained context; None if nobody said: one band then.
      length: evaluated tokens.
    """
    edges = [0]
    while edges[-1] < length:
        edges.append(min(2 * edges[-1] or trained or length, length))
    return tuple(Band(begin, end) for begin, end in itertools.pairwise(edges))


def differences(rows: Sequence[Row], found: Sequence[Band]) -> list[Difference]:
    """Every other method against the base model; nothing where that was not evaluated.

    Args:
      rows: of `nll_by_position`, of one base model, task and length.
      found: bands of positions; a bin lies where its first position does.
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
    """As the head of a column."""
    return f"{band.begin:,} to {band.end:,}" if band.begin else f"to {band.end:,}"


def difference_text(found: Estimate | None) -> str:
    """With its sign, and its interval in brackets; "" without a value."""
    if found is None:
        return ""
    if found.low is None or found.high is None:
        return f"{found.value:+.3f}"
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]"


def _bins(rows: Sequence[Row]) -> dict[int, float]:
    return {row["position_bin"]: row["nll"] for row in rows if row["nll"] is not None}


def _mean(gaps: dict[int, float], band: Band) -> Estimate | None:
    inside = [gap for position, gap in gaps.items() if band.begin <= position < band.end]
    return bootstrap_mean(inside) if inside else None
