"""How long a context a method really uses: the longest at which its score still holds."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

from numpy.typing import ArrayLike

from lce_core.errors import DataError
from lce_core.statistics._checks import finite
from lce_core.statistics.clustered import clustered_mean

LEVEL = 0.95
NONE = 0
"""Of a method whose score does not even hold at the shortest evaluated length."""


@dataclass(frozen=True)
class EffectiveLength:
    """The longest evaluated length up to which a mean score reaches a threshold, in tokens.

    `NONE` is below all evaluated lengths. Where `high` is the longest evaluated length, the true
    one may be longer.
    """

    tokens: int
    low: int
    high: int
    """Bounds of a 95 % interval among the evaluated lengths and `NONE`."""
    longest: int
    """The longest evaluated length."""


def effective_length(
    scores: Mapping[int, ArrayLike],
    threshold: float,
    *,
    clusters: Mapping[int, Sequence[Hashable]] | None = None,
    higher_is_better: bool = True,
) -> EffectiveLength:
    """The longest length such that the mean reaches `threshold` there and at all shorter ones.

    RULER's, but for its longest length above the threshold: a method that fails at 8k and passes at
    16k by chance is here effective below 8k. The lower bound holds where the score is surely high
    enough, up to the first length where it is not sure; the upper one ends where the score is
    surely too low, at one length of several tried, each therefore at a stricter level. Either is
    wrong in at most 2.5 % of studies.

    Args:
      scores: by evaluated length in tokens, scores of prompts (n,).
      threshold: in the unit of the scores; RULER takes those of Llama-2-7B at 4k, 0.856.
      clusters: by length, document of each score; None: every score by itself.
      higher_is_better: false for losses, whose mean must not exceed the threshold.

    Raises:
      DataError: no lengths, scores that are not finite, or not as many clusters.

    Source: Hsieh et al. 2024 (arXiv:2404.06654, section 4: effective length); Hsu and Berger 1999
    (Journal of the American Statistical Association 94, 468-482: stepwise bounds need no stricter
    level, since the first failure ends them).
    """
    if not scores:
        raise DataError(
            "effective_length", "no length", "scores at one length or more", "evaluate some"
        )
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
    """Last length before the first that does not hold."""
    found = NONE
    for length, one in zip(lengths, holds, strict=True):
        if not one:
            break
        found = length
    return found
