"""How much each method gains on the untouched base model at the same tokens, in nats.

Losses of two methods over the same text rise and fall together, so that the difference of a bin of
positions says much more than two means with an interval each. Intervals are by bootstrap over bins:
they cover the tokens that were read, and another text is another question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dashboards.contents import Row, select
from lce_core.statistics.estimates import Estimate, bootstrap_mean

BASE = "none"


@dataclass(frozen=True)
class Difference:
    """A method's NLL less the base model's, mean over bins of positions; below 0 is better."""

    method: str
    frozen: bool
    within: Estimate | None
    """Over positions within the trained context."""
    beyond: Estimate | None
    """Over those beyond it."""


def differences(rows: Sequence[Row], trained: int) -> list[Difference]:
    """Every other method against the base model; nothing where that was not evaluated.

    Args:
      rows: of `nll_by_position`, of one base model, task and length.
      trained: tokens of its trained context.
    """
    base = _bins(select(rows, method=BASE, frozen=True))
    found = []
    for method, frozen in dict.fromkeys((row["method"], row["frozen"]) for row in rows):
        bins = _bins(select(rows, method=method, frozen=frozen))
        shared = [position for position in bins if position in base]
        if (method, frozen) == (BASE, True) or not shared:
            continue
        gaps = {position: bins[position] - base[position] for position in shared}
        within = [gap for position, gap in gaps.items() if position < trained]
        beyond = [gap for position, gap in gaps.items() if position >= trained]
        found.append(Difference(method, frozen, _mean(within), _mean(beyond)))
    return found


def _bins(rows: Sequence[Row]) -> dict[int, float]:
    return {row["position_bin"]: row["nll"] for row in rows if row["nll"] is not None}


def _mean(gaps: Sequence[float]) -> Estimate | None:
    return bootstrap_mean(gaps) if gaps else None
