"""Effective context length: the longest length at which a score still reaches a threshold."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from numpy.typing import ArrayLike

from lce_core.statistics._checks import finite
from lce_core.statistics.clustered import clustered_mean

LEVEL = 0.95
NONE = 0
"""Effective length of a method whose mean score misses the threshold at every evaluated length, or
already at the shortest."""


@dataclass(frozen=True)
class EffectiveLength:
    """The longest evaluated length in tokens up to which a mean score reaches a threshold.

    `NONE` (0) means that the score misses the threshold at the shortest evaluated length. If
    `high` is the longest evaluated length, the true value may be longer.
    """

    tokens: int
    low: int
    high: int
    """Upper bound; `low` and `high` form a 95 % interval of evaluated lengths or `NONE`."""
    longest: int
    """The longest evaluated length in tokens."""


def effective_length(
    scores: Mapping[int, ArrayLike],
    threshold: float,
    *,
    clusters: Mapping[int, Sequence[Hashable]] | None = None,
    higher_is_better: bool = True,
) -> EffectiveLength:
    """Return the longest length up to which every mean reaches `threshold`, with 95 % bounds.

    RULER instead uses the longest length above the threshold. A method that fails at 8k and passes
    at 16k by chance has an effective length below 8k here.

    The lower bound is the last length before the first one whose interval includes values below the
    threshold. The upper bound is the last length before the first one whose interval lies entirely
    below it; as any of the lengths could end it by chance, those intervals use a stricter level.
    Each bound is wrong in at most 2.5 % of studies.

    Args:
      scores: scores of prompts (n,) by evaluated length in tokens.
      threshold: in the unit of the scores; RULER uses the score of Llama-2-7B at 4k, 0.856.
      clusters: document of each score, by length; None makes every score its own cluster.
      higher_is_better: False for losses, whose mean must not exceed the threshold.

    Source: Hsieh et al. 2024 (arXiv:2404.06654, section 4: effective length); Hsu and Berger 1999
    (Journal of the American Statistical Association 94, 468-482: stepwise bounds need no stricter
    level, since the first failure ends them).
    """
    assert scores, "no length"
    lengths = sorted(scores)
    strict = 1 - (1 - LEVEL) / len(lengths)
    reached, surely, possibly = [], [], []
    for length in lengths:
        values = finite(f"scores at {length} tokens", scores[length])
        named = None if clusters is None else clusters[length]
        mean = clustered_mean(values, named, level=LEVEL)
        wide = clustered_mean(values, named, level=strict)
        worst, best = (mean.low, wide.high) if higher_is_better else (mean.high, wide.low)
        sign = 1 if higher_is_better else -1
        reached.append(sign * mean.value >= sign * threshold)
        surely.append(worst is not None and sign * worst >= sign * threshold)
        possibly.append(best is None or sign * best >= sign * threshold)
    return EffectiveLength(
        _first_run(lengths, reached),
        _first_run(lengths, surely),
        _first_run(lengths, possibly),
        lengths[-1],
    )


def _first_run(lengths: Sequence[int], holds: Sequence[bool]) -> int:
    """Return the longest length before the first False in `holds`; `NONE` if the first is False."""
    return [NONE, *lengths][sum(1 for _ in takewhile(bool, holds))]
