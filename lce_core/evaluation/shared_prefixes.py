"""Prompts with common prefixes: find the order in which a key-value cache is reused most.

In lexicographic order of token ids, the longest prefix that a prompt shares with any earlier prompt
is the one it shares with its predecessor. A cache that is cut back to that prefix before each
prompt therefore processes every node of the prefix tree exactly once. Prompts of a needle grid that
differ in depth share everything before the shallower needle. The questions of a many-shot test
share all demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int64]


def common_prefix(first: TokenIds, second: TokenIds) -> int:
    """Return the length of the common prefix of two texts in tokens."""
    shorter = min(len(first), len(second))
    different = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(different[0]) if different.size else shorter


def reusable(held: TokenIds, text: TokenIds) -> int:
    """Return how many tokens of `text` need no new pass if a cache holds the text `held`.

    The last token is always processed again, because its state predicts the answer.
    """
    return min(common_prefix(held, text), len(text) - 1)


def sharing_order(prompts: Sequence[TokenIds]) -> list[int]:
    """Return the indices of the prompts, sorted lexicographically by token ids."""
    # Big-endian bytes of non-negative integers sort like the integers.
    keys = [np.asarray(prompt, dtype=">i8").tobytes() for prompt in prompts]
    return sorted(range(len(prompts)), key=keys.__getitem__)


def num_distinct_tokens(prompts: Sequence[TokenIds], order: Sequence[int]) -> int:
    """Count the tokens to process if each prompt reuses its predecessor's common prefix."""
    total, previous = 0, np.empty(0, dtype=np.int64)
    for index in order:
        total += len(prompts[index]) - common_prefix(previous, prompts[index])
        previous = prompts[index]
    return total


def bundles(
    prompts: Sequence[TokenIds], order: Sequence[int], max_tokens: int, new_tokens: int
) -> list[list[int]]:
    """Group successive prompts of `order` so that each group fits one cache with its answers.

    Args:
      prompts: token ids of each prompt.
      order: indices of the prompts.
      max_tokens: tokens that a cache may hold beside its first prompt and that prompt's answer;
        shared prefixes count once.
      new_tokens: tokens of an answer.
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
