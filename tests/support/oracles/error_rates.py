"""Bounds on simulated rates: a method that keeps its rate exceeds them once in 10,000 runs."""

from scipy import stats

CHANCE = 1e-4


def at_most(count: int, runs: int, rate: float) -> None:
    """Fails unless `count` of `runs` can come from a rate of at most `rate`."""
    limit = int(stats.binom.ppf(1 - CHANCE, runs, rate))
    assert count <= limit, f"{count} of {runs}, where {rate:.1%} gives at most {limit}"


def at_least(count: int, runs: int, rate: float) -> None:
    """Fails unless `count` of `runs` can come from a rate of at least `rate`."""
    limit = int(stats.binom.ppf(CHANCE, runs, rate))
    assert count >= limit, f"{count} of {runs}, where {rate:.1%} gives at least {limit}"


def between(count: int, runs: int, low: float, high: float) -> None:
    """Fails unless `count` of `runs` can come from a rate within the bounds."""
    at_least(count, runs, low)
    at_most(count, runs, high)
