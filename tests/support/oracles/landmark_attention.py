"""Landmark attention written out: plain loops in float64, one query at a time."""

import math
from collections.abc import Callable

import numpy as np
import torch

from lce_core.attention.schemes import BlockRetrieval
from lce_core.rope import RopeTable

SCALING = 0.4
PAIRS = 2
TABLE = RopeTable(np.array([1.0, 0.03]))
States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def score(query: torch.Tensor, key: torch.Tensor, distance: int) -> float:
    """Scaled product of one query and one key, `distance` positions apart."""
    total = float(query[2 * PAIRS :] @ key[2 * PAIRS :])
    for pair in range(PAIRS):
        q = complex(query[pair], query[pair + PAIRS])
        k = complex(key[pair], key[pair + PAIRS])
        turn = complex(math.cos(angle := distance * TABLE.inv_freq[pair]), math.sin(angle))
        total += (q * turn * k.conjugate()).real
    return total * SCALING


def shares(scores: list[float]) -> list[float]:
    powers = [math.exp(value) for value in scores]
    return [power / sum(powers) for power in powers]


def grouped(
    own: dict[int, float], others: list[tuple[float, dict[int, float]]]
) -> dict[int, float]:
    """Weight of each token: one softmax over own tokens and landmarks, one inside each block.

    Args:
      own: scores of the tokens of the query's block.
      others: for each other block the score of its landmark and those of its tokens.
    """
    outer = shares([*own.values(), *(gate for gate, _ in others)])
    found = dict(zip(own, outer[: len(own)], strict=True))
    for share, (_, inside) in zip(outer[len(own) :], others, strict=True):
        found |= {
            token: share * part
            for token, part in zip(inside, shares(list(inside.values())), strict=True)
        }
    return found


def blocks_of(
    place: int, start: int, block: int, at: Callable[[int, int], float]
) -> tuple[dict[int, float], list[tuple[float, dict[int, float]]]]:
    """Own tokens and earlier blocks, from `start` on, of the query at `place`."""
    first = place // block * block
    last = min(place, first + block - 2)
    own = {j: at(place, j) for j in range(first, last + 1)}
    others = [
        (at(place, b + block - 1), {j: at(place, j) for j in range(b, b + block - 1)})
        for b in range(start, first, block)
    ]
    return own, others


def trained(parts: States, head: int, block: int) -> torch.Tensor:
    """Weights (queries, keys) of one head of the first text, as in training."""
    query, key = parts[0][0, head], parts[1][0, head * parts[1].shape[1] // parts[0].shape[1]]
    found = torch.zeros(len(query), len(key), dtype=torch.float64)
    for i in range(len(query)):
        own, others = blocks_of(i, 0, block, lambda i, j: score(query[i], key[j], i - j))
        for token, weight in grouped(own, others).items():
            found[i, token] = weight
    return found


def selected(query: torch.Tensor, key: torch.Tensor, i: int, scheme: BlockRetrieval) -> list[int]:
    """Blocks that the query at position i reads, ascending; of equal scores the earlier block."""
    block, start = scheme.block, i // scheme.chunk * scheme.chunk
    number = start // block
    top_k = min(scheme.top_k, number)
    gates = []
    for b in range(number):
        slot = max(0, b - (number - top_k) + 1)
        lies = start - (top_k + 1 - slot) * block + block - 1
        gates.append(score(query[i], key[b * block + block - 1], i - lies))
    return sorted(sorted(range(number), key=lambda b: (-gates[b], b))[:top_k])


def retrieved(
    parts: States, head: int, scheme: BlockRetrieval
) -> tuple[torch.Tensor, list[list[int]]]:
    """Weights (queries, keys) of one head in use, and the blocks that each query selects.

    Positions are absolute here: of the `top_k + 1` slots before the chunk, the last ones are where
    the most recent blocks really lie.
    """
    query, key = parts[0][0, head], parts[1][0, head * parts[1].shape[1] // parts[0].shape[1]]
    block, found, chosen = scheme.block, torch.zeros(len(query), len(key)).double(), []
    for i in range(len(query)):
        start = i // scheme.chunk * scheme.chunk
        number = start // block
        top_k = min(scheme.top_k, number)
        prefix = start - (top_k + 1) * block
        picks = selected(query, key, i, scheme)
        chosen.append(picks)
        own, others = blocks_of(i, start, block, lambda i, j: score(query[i], key[j], i - j))
        for nth, b in enumerate(picks):
            slot = nth + (b >= number - top_k)
            inside = {
                b * block + t: score(query[i], key[b * block + t], i - prefix - slot * block - t)
                for t in range(block)
            }
            others.append((inside.pop(b * block + block - 1), inside))
        for token, weight in grouped(own, others).items():
            found[i, token] = weight
    return found, chosen


def written_out(parts: States, weights_of: Callable[[States, int], torch.Tensor]) -> torch.Tensor:
    """Outputs of all texts and heads from weights."""
    query, _, value = parts
    rows = []
    for text in range(len(query)):
        alone = tuple(part[[text]] for part in parts)
        shared = query.shape[1] // value.shape[1]
        heads = [
            weights_of(alone, head) @ value[text, head // shared]  # type: ignore[arg-type]
            for head in range(query.shape[1])
        ]
        rows.append(torch.stack(heads))
    return torch.stack(rows)
