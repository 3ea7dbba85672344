"""Prompts that begin alike: in which order a key-value cache serves most of them again.

In lexicographic order of their ids the longest beginning that a prompt shares with any prompt
before it is the one it shares with its predecessor. A cache that is cut back to that beginning
before each prompt therefore sees every node of the prompts' prefix tree exactly once: the depths of
a needle grid share what lies before the shallower needle, the questions of a many-shot test share
all demonstrations.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int64]


def common_prefix(first: TokenIds, second: TokenIds) -> int:
    """Tokens at which two texts agree from their start."""
    shorter = min(len(first), len(second))
    different = np.flatnonzero(first[:shorter] != second[:shorter])
    return int(different[0]) if different.size else shorter


def reusable(held: TokenIds, text: TokenIds) -> int:
    """Tokens of `text` that need no processing where those of `held` have been.

    The last one always does: its state gives the answer.
    """
    return min(common_prefix(held, text), len(text) - 1)


def sharing_order(prompts: Sequence[TokenIds]) -> list[int]:
    """Indices of the prompts in lexicographic order of their ids."""
    # Big-endian bytes of non-negative numbers compare as the numbers do.
    keys = [np.asarray(prompt, dtype=">i8").tobytes() for prompt in prompts]
    return sorted(range(len(prompts)), key=keys.__getitem__)


def num_distinct_tokens(prompts: Sequence[TokenIds], order: Sequence[int]) -> int:
    """Tokens that are processed if each prompt keeps what its predecessor in `order` shares."""
    total, previous = 0, np.empty(0, dtype=np.int64)
    for index in order:
        total += len(prompts[index]) - common_prefix(previous, prompts[index])
        previous = prompts[index]
    return total


def bundles(
    prompts: Sequence[TokenIds], order: Sequence[int], max_tokens: int, new_tokens: int
) -> list[list[int]]:
    """Successive prompts of `order` that share one cache with their answers.

    Args:
      prompts: token ids of each.
      order: indices of the prompts.
      max_tokens: that a cache may hold beside its first prompt and that one's answer, shared
        beginnings counted once.
      new_tokens: of an answer.
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
