"""Dense attention from declared distances, with which the checks compare a method's kernel.

Every pair of a query and a key is rotated by its relative position in float64. Kernels rotate both
separately, by absolute positions, and share no code with this.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch

from lce_core.attention import AttentionScheme, Distance, LayerAttention
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.schemes import FullCausal
from lce_core.contracts.tiny_models import logits
from lce_core.extension.extended_model import ExtendedModel
from lce_core.methods import Method, TokenInsertion
from lce_core.rope import RopeGeometry


@dataclass(frozen=True)
class Dense(AttentionScheme):
    """The tables and distances of other schemes, without their kernels."""

    layers: tuple[LayerAttention, ...]
    """RoPE table and scheme of each layer."""

    kernel: ClassVar[str] = f"{__name__}:attend"
    heads_alike: ClassVar[bool] = False
    uses_flash: ClassVar[bool] = False


@dataclass(frozen=True)
class AtPositions(AttentionScheme):
    """Full causal attention of a training row whose tokens have these positions."""

    positions: tuple[int, ...]

    kernel: ClassVar[str] = ""

    def distance(self, query: int, key: int) -> int | None:
        return self.positions[query] - self.positions[key] if key <= query else None


def attend(scheme: Dense, inputs: AttentionInputs) -> torch.Tensor:
    query, heads = inputs.query, inputs.query.shape[1]
    own = scheme.layers[inputs.layer]
    declared, inv_freq = own.scheme or FullCausal(), own.table.inv_freq
    positions = range(inputs.first_query, inputs.length)
    factors = query.new_tensor([own.query_factor(i) for i in positions])
    factors *= query.shape[-1] ** -0.5 * own.table.attention_factor**2
    shared = heads // inputs.key.shape[1]
    outputs = []
    for head in range(heads):
        distance = declared.distances_of(inputs.layer, head, heads)
        relative = [[distance(i, j) for j in range(inputs.length)] for i in positions]
        hidden = torch.tensor([[steps is None for steps in row] for row in relative])
        row = torch.from_numpy(inv_freq if inv_freq.ndim == 1 else inv_freq[head])
        steps = torch.stack([_of_pairs(one, len(row)) for one in relative])
        key = inputs.key[:, head // shared]
        scores = _scores(query[:, head], key, steps * row) * factors[:, None]
        weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
        outputs.append(weights @ inputs.value[:, head // shared])
    return torch.stack(outputs, dim=1)


def _of_pairs(distances: Sequence[Distance], pairs: int) -> torch.Tensor:
    """Return a distance for each key and frequency pair (keys, pairs), float64; 0 for None."""
    rows = [one if isinstance(one, tuple) else (one or 0.0,) * pairs for one in distances]
    return torch.tensor(rows, dtype=torch.float64)


def _scores(query: torch.Tensor, key: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    """Return products (batch, queries, keys) of states `angles` (queries, keys, pairs) apart."""
    pairs = angles.shape[-1]
    q1, q2, q_rest = query[:, :, None].tensor_split((pairs, 2 * pairs), dim=-1)
    k1, k2, k_rest = key[:, None].tensor_split((pairs, 2 * pairs), dim=-1)
    along, across = q1 * k1 + q2 * k2, q1 * k2 - q2 * k1
    turned = along * angles.cos() + across * angles.sin()
    products: torch.Tensor = turned.sum(-1) + (q_rest * k_rest).sum(-1)
    return products


def as_if_dense(method: Method, layers: Sequence[LayerAttention]) -> Method:
    class Twin(Method):
        def attention(self, *_: object) -> Dense:
            return Dense(tuple(layers))

        def insertion(self, geometry: RopeGeometry) -> TokenInsertion | None:
            return method.insertion(geometry)

    return Twin()


def in_pieces(extended: ExtendedModel, ids: torch.Tensor) -> torch.Tensor:
    """Return the logits (batch, length, VOCABULARY) of a text, read in pieces over a cache."""
    length = ids.shape[1]
    cuts = [cut for cut in accumulate((length // 2, *[1, 4] * length)) if cut < length]
    return logits(extended, ids, tuple(cuts), preallocated=True)


def same_as_dense(found: torch.Tensor, expected: torch.Tensor, where: str) -> None:
    """Assert that logits (batch, tokens, vocabulary) agree up to rounding of float64."""
    apart = (found - expected).abs().amax(dim=(0, 2))
    wrong = (apart > 1e-8).nonzero().flatten().tolist()
    assert not wrong, f"{where}; off by {apart.max():.3g}, first at the query at {wrong[0]}"
