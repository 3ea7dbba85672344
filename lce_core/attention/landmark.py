"""Kernel of GroupedSoftmax: landmark attention of a whole sequence, as in training.

The last token of each block is its landmark. A query distributes its attention over the tokens of
its own block and the landmarks of earlier blocks, and the weight of a landmark over the tokens of
its block. With scores s, the weight of token j of an earlier block b is

    exp(s[landmark of b]) / Z * exp(s[j]) / sum over tokens l of b of exp(s[l])

where Z is the sum of exp(s) over the visible tokens of the query's own block and the landmarks of
earlier blocks. "Tokens of b" excludes the landmark, which is never visible itself. An ordinary
softmax gives the same weights if the gate s[landmark of b] - logsumexp of s over tokens of b is
added to the scores of b.

The (queries, keys) scores are affordable for training sequences of a few hundred tokens.
"""

from __future__ import annotations

import torch

from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.schemes import GroupedSoftmax


def attend(scheme: GroupedSoftmax, inputs: AttentionInputs) -> torch.Tensor:
    rotate, first, value = inputs.rotation(), inputs.first_query, inputs.value
    query = rotate(inputs.query, slice(first, inputs.length))
    key = rotate(inputs.key, slice(inputs.length))
    grouped = query.unflatten(1, (key.shape[1], -1))
    raised = raise_scores(scores_of(grouped, key[:, :, None], inputs.scaling), first, scheme.block)
    return (raised.softmax(dim=-1).to(value.dtype) @ value[:, :, None]).flatten(1, 2)


def scores_of(query: torch.Tensor, key: torch.Tensor, scaling: float) -> torch.Tensor:
    scores = query @ key.transpose(-1, -2)
    return scores.to(torch.promote_types(scores.dtype, torch.float32)) * scaling


def raise_scores(scores: torch.Tensor, first_query: int, block: int) -> torch.Tensor:
    """Return scores whose softmax is the grouped softmax; -inf for landmarks and later tokens.

    `scores` are (..., queries, keys): row t is the query at position first_query + t, column j the
    key at position j. Position 0 must be the first token of a block.
    """
    num_queries, num_keys = scores.shape[-2:]
    places = torch.arange(first_query, first_query + num_queries, device=scores.device)[:, None]
    columns = torch.arange(num_keys, device=scores.device)
    whole = num_keys // block
    blocks = scores[..., : whole * block].unflatten(-1, (whole, block))
    # The gate of a block, zero for the query's own block, whose tokens keep their own scores.
    gates = blocks[..., -1] - blocks[..., :-1].logsumexp(dim=-1)
    gates = gates.masked_fill(columns[:whole] >= places // block, 0.0)
    raised = (blocks + gates[..., None]).flatten(-2)
    raised = torch.cat((raised, scores[..., whole * block :]), dim=-1)
    return raised.masked_fill((columns > places) | (columns % block == block - 1), -torch.inf)
