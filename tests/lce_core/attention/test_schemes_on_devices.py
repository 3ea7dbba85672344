"""Schemes and their gradients on each device, against float64 on the CPU over the same inputs."""

import importlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from lce_core.attention import flash
from lce_core.attention.schemes import (
    BlockRetrieval,
    CacheSinks,
    FullCausal,
    GroupedNeighbour,
    GroupedSoftmax,
    LambdaShaped,
    Rectified,
    ShiftedSparse,
)
from lce_core.methods.dca import DualChunk
from lce_core.methods.string import Shifted
from lce_core.rope import RopeTable
from tests.support.on_devices import Place, over_places
from tests.support.oracles.dense_attention import dense
from tests.support.oracles.landmark_attention import SCALING as LANDMARK_SCALING
from tests.support.oracles.landmark_attention import TABLE as LANDMARK_TABLE
from tests.support.oracles.landmark_attention import retrieved, written_out
from tests.support.oracles.placed_attention import in_chunks

HEADS, KV_HEADS = 4, 2
States = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

SCHEMES: list[Any] = [
    FullCausal(),
    LambdaShaped(24, 4),
    GroupedNeighbour(24, 4),
    CacheSinks(24, 4),
    Rectified(24),
    Rectified(24, (4,)),
    ShiftedSparse(32),
    DualChunk(24, 4),
    Shifted(24, 4),
]
"""Those that are one softmax over distances."""
over_schemes = pytest.mark.parametrize("scheme", SCHEMES, ids=str)


def draw(place: Place, length: int, dim: int) -> States:
    """Query, key and value on the CPU in float64, each a number of the place's dtype."""
    generator = torch.Generator().manual_seed(length)

    def one(heads: int) -> torch.Tensor:
        drawn = torch.randn(1, heads, length, dim, generator=generator)
        return drawn.to(place.dtype).double()

    return one(HEADS), one(KV_HEADS), one(KV_HEADS)


def sizes(place: Place) -> tuple[int, int, int]:
    """Tokens, width of a head and rotated pairs: Llama's on a GPU."""
    return (192, 128, 64) if place.is_cuda else (96, 32, 12)


def table(pairs: int, per_head: bool) -> RopeTable:
    inv_freq = 1e4 ** (-np.arange(pairs) / pairs)
    if not per_head:
        return RopeTable(inv_freq)
    shared = [inv_freq * (1 + 0.1 * head) for head in range(KV_HEADS)]
    return RopeTable(np.repeat(np.stack(shared), HEADS // KV_HEADS, axis=0))


def computed(
    scheme: Any, parts: States, rope: RopeTable, scaling: float, cuts: tuple[int, ...] = ()
) -> torch.Tensor:
    module, _, name = scheme.kernel.partition(":")
    kernel: Callable[..., torch.Tensor] = getattr(importlib.import_module(module), name)
    return in_chunks(kernel, scheme, parts, rope, cuts, scaling)


def expected(scheme: Any, parts: States, rope: RopeTable, scaling: float) -> torch.Tensor:
    if not isinstance(scheme, ShiftedSparse):
        return dense(*parts, rope.inv_freq, scheme.distance, scaling)
    halves = zip(*(part.chunk(2, dim=1) for part in parts), strict=True)

    def shifted(query: int, key: int) -> int | None:
        return scheme.distance(query, key, shifted=True)

    ways = (scheme.distance, shifted)
    both = zip(halves, ways, strict=True)
    return torch.cat([dense(*half, rope.inv_freq, way, scaling) for half, way in both], dim=1)


def grouped_softmax(
    scheme: GroupedSoftmax, parts: States, rope: RopeTable, scaling: float
) -> torch.Tensor:
    """One softmax over own tokens and earlier landmarks, one inside each block before."""
    query, key, value = parts
    pairs, block = rope.inv_freq.shape[-1], scheme.block
    key, value = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (key, value))
    angles = torch.arange(query.shape[2])[:, None] * torch.from_numpy(rope.inv_freq)
    turns = torch.polar(torch.ones_like(angles), angles)

    def turned(states: torch.Tensor) -> torch.Tensor:
        return torch.complex(states[..., :pairs], states[..., pairs : 2 * pairs]) * turns

    scores = (turned(query) @ turned(key).conj().transpose(-1, -2)).real
    scores = scores + query[..., 2 * pairs :] @ key[..., 2 * pairs :].transpose(-1, -2)
    rows = []
    for place in range(query.shape[2]):
        row = scores[0, :, place] * scaling
        first = place // block * block
        own = list(range(first, min(place, first + block - 2) + 1))
        inside = [range(start, start + block - 1) for start in range(0, first, block)]
        gates = [row[:, [one.stop]] for one in inside]
        outer = torch.cat([row[:, own], *gates], dim=1).softmax(-1)
        read = [value[0, :, own]]
        for one in inside:
            among = row[:, list(one)].softmax(-1)
            read.append(among[:, None] @ value[0, :, list(one)])
        rows.append((outer[:, None] @ torch.cat(read, dim=1))[:, 0])
    return torch.stack(rows, dim=1)[None]


def at(place: Place, parts: States) -> States:
    query, key, value = (part.to(place.device, place.dtype) for part in parts)
    return query, key, value


def assert_near(found: torch.Tensor, wanted: torch.Tensor, tolerance: float) -> None:
    assert bool(torch.isfinite(found).all())
    scale = max(1.0, float(wanted.abs().max()))
    assert float((found.cpu().double() - wanted).abs().max()) <= tolerance * scale


@over_places
@over_schemes
def test_a_scheme_is_its_definition(place, scheme):
    length, dim, pairs = sizes(place)
    parts, rope = draw(place, length, dim), table(pairs, isinstance(scheme, FullCausal))
    wanted = expected(scheme, parts, rope, dim**-0.5)
    # ShiftedSparse is trained and never decoded.
    for cuts in ((), (33, 34, 71))[: 1 if isinstance(scheme, ShiftedSparse) else 2]:
        with torch.no_grad():
            found = computed(scheme, at(place, parts), rope, dim**-0.5, cuts)
        assert found.dtype == place.dtype
        assert_near(found, wanted, place.tolerance)


@over_places
@pytest.mark.parametrize("scheme", [*SCHEMES, GroupedSoftmax(8)], ids=str)
def test_gradients_are_those_of_the_definition_or_refused(place, scheme):
    length, dim, pairs = sizes(place)
    landmarks = isinstance(scheme, GroupedSoftmax)
    if landmarks:
        length, dim, pairs = 64, 16, 6
    parts, rope = draw(place, length, dim), table(pairs, isinstance(scheme, FullCausal))
    ours = [part.requires_grad_() for part in at(place, parts)]
    if not scheme.differentiable:
        with pytest.raises(AssertionError, match="inference only"):
            computed(scheme, (ours[0], ours[1], ours[2]), rope, dim**-0.5)
        return
    theirs = [part.clone().requires_grad_() for part in parts]
    oracle = grouped_softmax if landmarks else expected
    wanted = oracle(scheme, (theirs[0], theirs[1], theirs[2]), rope, dim**-0.5)
    found = computed(scheme, (ours[0], ours[1], ours[2]), rope, dim**-0.5)
    assert_near(found.detach(), wanted.detach(), place.tolerance)
    slope = torch.randn(wanted.shape, generator=torch.Generator().manual_seed(1)).to(place.dtype)
    found.backward(slope.to(place.device))
    wanted.backward(slope.double())
    for our, their in zip(ours, theirs, strict=True):
        assert our.grad is not None
        assert their.grad is not None
        assert_near(our.grad, their.grad, place.tolerance)


@over_places
def test_retrieval_is_its_definition(place):
    scheme = BlockRetrieval(block=4, top_k=2, chunk=16)
    parts = draw(place, 80, 6)
    wanted = written_out(parts, lambda alone, head: retrieved(alone, head, scheme)[0])
    for cuts in ((), (33, 34, 71)):
        with torch.no_grad():
            found = computed(scheme, at(place, parts), LANDMARK_TABLE, LANDMARK_SCALING, cuts)
        assert_near(found, wanted, place.tolerance)


@over_places
def test_parts_carry_the_log_of_their_softmax_denominator(place):
    length, dim, _ = sizes(place)
    parts, window = draw(place, length, dim), 24
    query, key, value = at(place, parts)
    if place.is_cuda:
        wanted_backend = "blocked" if place.dtype == torch.float32 else "torch_flash"
        assert flash.backend(place.device, place.dtype) == wanted_backend
    shared = parts[1].repeat_interleave(HEADS // KV_HEADS, dim=1)
    scores = parts[0] @ shared.transpose(-1, -2) * dim**-0.5
    row, column = torch.arange(length)[:, None], torch.arange(length)
    with torch.no_grad():
        found = {
            "all": flash.attend_all(query, key, value, dim**-0.5),
            "causal": flash.attend_causal(query, key, value, dim**-0.5),
            "window": flash.attend_window(query, key, value, dim**-0.5, window),
        }
    seen = {
        "all": torch.ones(length, length, dtype=torch.bool),
        "causal": column <= row,
        "window": (column <= row) & (column > row - window),
    }
    for name, part in found.items():
        wanted = scores.masked_fill(~seen[name], -math.inf).logsumexp(-1)
        assert_near(part.lse, wanted, place.tolerance)
