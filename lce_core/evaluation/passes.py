"""Decide which texts go through the model in one forward pass, and which share prefixes.

Kernels change their order of summation with the number of rows, so a score may depend on the other
texts of a batch. In float32 the effect on a logit is about 1e-6, and passes are as large as the
token budget allows. In bf16 the effect reaches the third digit and changes one answer in ten of a
randomly initialised model. In half precision, each text is therefore processed alone, in pieces of
one size at fixed positions, and prompts share only whole pieces. On one machine, results are then
bitwise equal for every token budget, with and without sharing.

In lexicographic order of token ids, the longest prefix that a prompt shares with any earlier prompt
is the one that it shares with its predecessor. If the cache is cut back to that prefix before each
prompt, every distinct prefix is processed exactly once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel

TokenIds = NDArray[np.int64]
CHUNK = 4096
"""Maximum tokens of a prompt per forward pass in float32."""
PIECE = 1024
"""Maximum tokens of a prompt per forward pass in half precision; passes start at its multiples."""
_WORTH_SHARING = 2 / 3
"""Prompts share a cache if at most this fraction of their tokens remains to process. The saving
must make up for texts that then run one at a time instead of in batches."""


def texts_together(model: ExtendedModel, length: int, batch_tokens: int) -> int:
    return 1 if model.coarse else max(1, batch_tokens // length)


def same_frequencies(
    model: ExtendedModel, texts: Sequence[TokenIds], new_tokens: int
) -> list[list[int]]:
    keys = {length: model.request_key(length + new_tokens) for length in {*map(len, texts)}}
    groups: dict[object, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(keys[len(text)], []).append(index)
    return list(groups.values())


def batches(lengths: Sequence[int], batch_tokens: int, *, mixed: bool) -> Iterator[list[int]]:
    """Yield batches of text indices within a token budget, shortest texts first.

    A single text may exceed `batch_tokens`. `mixed` allows texts of different lengths in a batch.
    """
    batch: list[int] = []
    tokens = 0
    for text in sorted(range(len(lengths)), key=lengths.__getitem__):
        alike = not batch or mixed or lengths[batch[0]] == lengths[text]
        if batch and not (alike and tokens + lengths[text] <= batch_tokens):
            yield batch
            batch, tokens = [], 0
        batch.append(text)
        tokens += lengths[text]
    if batch:
        yield batch


def shape_of_passes(model: ExtendedModel, batch_tokens: int) -> dict[str, int]:
    """Return the limits of a forward pass, to be recorded with the evaluation's result."""
    if model.coarse:
        return {"texts": 1, "piece_tokens": PIECE}
    return {"batch_tokens": batch_tokens, "piece_tokens": CHUNK}


@dataclass
class Passed:
    """Counter of the tokens that passed through a model."""

    tokens: int = 0
    """Tokens of prompts, windows and answers, with inserted tokens and without reused ones."""


@contextmanager
def counted(model: ExtendedModel) -> Iterator[Passed]:
    passed, replayed_before = Passed(), model.replayed_tokens

    def count(_: object, inputs: tuple[Any, ...]) -> None:
        passed.tokens += inputs[0].numel()

    hook = model.model.get_input_embeddings().register_forward_pre_hook(count)
    try:
        yield passed
    finally:
        hook.remove()
        passed.tokens += model.replayed_tokens - replayed_before


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
