"""McNemar's exact test of two methods that answer the same prompts right or wrong."""

from __future__ import annotations

from functools import lru_cache

from scipy import stats


@lru_cache(maxsize=4096)
def exact_mcnemar(num_first_only: int, num_second_only: int) -> float:
    """Return the two-sided p-value of the hypothesis that both methods are right equally often.

    The prompts must be independent and each answer right or wrong. Prompts that both methods answer
    right, or both wrong, do not count. Under the hypothesis each other prompt favours either method
    with probability 1/2. If there are none, the p-value is 1.

    Args:
      num_first_only: number of prompts that only the first method answers right.
      num_second_only: number of prompts that only the second method answers right.

    Source: McNemar 1947 (Psychometrika 12, 153-157), with the binomial distribution instead of its
    normal approximation.
    """
    assert min(num_first_only, num_second_only) >= 0, (num_first_only, num_second_only)
    num_prompts = num_first_only + num_second_only
    if not num_prompts:
        return 1.0
    return float(stats.binomtest(num_first_only, num_prompts, 0.5).pvalue)
