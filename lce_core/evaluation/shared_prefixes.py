"""Prompts with common prefixes: find the order in which a key-value cache is reused most.

In lexicographic order of token ids, the longest prefix that a prompt shares with any earlier prompt
is the one that it shares with its predecessor. If the cache is cut back to that prefix before each
prompt, every distinct prefix is processed exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int64]
_WORTH_SHARING = 2 / 3
"""Prompts share a cache if at most this fraction of their tokens remains to process. The saving
must make up for texts that then run one at a time instead of in batches."""


def common_prefix(first: TokenIds, second: TokenIds) -> int:
    shorter = min(len(first), len(second))
    different = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(different[0]) if different.size else shorter


def reusable(held: TokenIds, text: TokenIds, tail: int = 1) -> int:
    """Return how many tokens of `text` need not be processed if a cache contains `held`.

    The hidden states of the last `tail` tokens are needed; the last one predicts the answer.
    """
    return min(common_prefix(held, text), len(text) - tail)


def sharing_order(prompts: Sequence[TokenIds]) -> list[int]:
    # Big-endian bytes of non-negative integers sort like the integers.
    keys = [np.asarray(prompt, dtype=">i8").tobytes() for prompt in prompts]
    return sorted(range(len(prompts)), key=keys.__getitem__)


def num_distinct_tokens(prompts: Sequence[TokenIds], order: Sequence[int]) -> int:
    """Count the tokens to process if each prompt reuses the prefix shared with its predecessor."""
    total, previous = 0, np.empty(0, dtype=np.int64)
    for index in order:
        total += len(prompts[index]) - common_prefix(previous, prompts[index])
        previous = prompts[index]
    return total


def pays(prompts: Sequence[TokenIds]) -> bool:
    left = num_distinct_tokens(prompts, sharing_order(prompts))
    return left <= _WORTH_SHARING * sum(map(len, prompts))


def bundles(
    prompts: Sequence[TokenIds], order: Sequence[int], max_tokens: int, new_tokens: int
) -> list[list[int]]:
    """Group successive prompts of `order` so that each group and its answers fit one cache.

    A cache has at most `max_tokens` besides the group's first prompt and its answer; shared
    prefixes count once.
    """
    found: list[list[int]] = []
    room = 0
    for index in order:
        if found:
            shared = reusable(prompts[found[-1][-1]], prompts[index])
            room -= len(prompts[index]) - shared + new_tokens
        if found and room >= 0:
            found[-1].append(index)
        else:
            found.append([index])
            room = max_tokens
    return found
