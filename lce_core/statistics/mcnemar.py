"""McNemar's exact test of two methods that answer the same prompts right or wrong."""

from __future__ import annotations

from functools import lru_cache

from scipy import stats


@lru_cache(maxsize=4096)
def exact_mcnemar(num_first_only: int, num_second_only: int) -> float:
    """Return the two-sided p-value of the hypothesis that both methods are right equally often.

    The arguments count independent prompts that only one method answers right. Under the hypothesis
    each favours either method with probability 1/2; without any, the p-value is 1. Source: McNemar
    1947 (Psychometrika 12, 153-157), without its normal approximation.
    """
    assert min(num_first_only, num_second_only) >= 0, (num_first_only, num_second_only)
    num_prompts = num_first_only + num_second_only
    if not num_prompts:
        return 1.0
    return float(stats.binomtest(num_first_only, num_prompts, 0.5).pvalue)
