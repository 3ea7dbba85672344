"""Memory of a layer's attention, measured by torch's allocator at a 128th of 131,072 tokens."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

from lce_core.attention import flash, registered, rotation
from lce_core.attention.inputs import AttentionInputs
from lce_core.attention.registered import num_parts
from lce_core.attention.schemes import (
    CacheSinks,
    FullCausal,
    GroupedNeighbour,
    LambdaShaped,
    Rectified,
)
from lce_core.methods.dca import DualChunk
from lce_core.methods.lampe import Mapped
from lce_core.methods.string import Shifted
from lce_core.rope import RopeTable
from tests.support.torch_memory import peak_bytes

LENGTH, HEADS, HEAD_DIM = 131_072, 32, 128
GIGABYTE = 1_000_000_000
SMALL: list[Any] = [
    LambdaShaped(64, 3),
    CacheSinks(64, 3),
    GroupedNeighbour(16, 4),
    Rectified(32),
    Rectified(32, (4,)),
    FullCausal(),
    DualChunk(96, 8),
    Shifted(600, 8),
    Mapped(64, length=1024, positions=300, outer=900),
]
over_schemes = pytest.mark.parametrize("scheme", SMALL, ids=str)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch) -> Iterator[None]:
    """Cosines and masks of a test are its own: some have no contents."""
    monkeypatch.setattr(rotation, "_KEPT", OrderedDict())
    with torch.no_grad():
        yield
    rotation._cached.cache_clear()
    flash._band.cache_clear()


def table(scheme: Any, heads: int, pairs: int) -> RopeTable:
    inv_freq = 1e4 ** (-np.arange(pairs) / pairs)
    if isinstance(scheme, FullCausal):
        inv_freq = np.stack([inv_freq / (1 + head) for head in range(heads)])
    return RopeTable(inv_freq)


def layer(scheme: Any, rope: RopeTable) -> Callable[..., torch.Tensor]:
    class Module:
        lce_scheme = scheme, rope, None
        layer_idx = 0

    return lambda *states: registered._attention(Module(), *states, None, scaling=0.1)[0]


@over_schemes
def test_measured_memory_keeps_budgets_at_a_small_size(
    scheme: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A layer may take a gigabyte at 131,072 tokens; lengths and budgets are a 128th of that.
    length = LENGTH // 128
    monkeypatch.setattr(registered, "_TEMPORARIES", registered._TEMPORARIES // 128)
    monkeypatch.setattr(rotation, "_KEPT_BYTES", rotation._KEPT_BYTES // 128)
    drawn = torch.randn(3, 1, length, HEADS, HEAD_DIM, generator=torch.Generator().manual_seed(0))
    states = list(drawn.bfloat16().transpose(2, 3))
    attend = layer(scheme, table(scheme, HEADS, HEAD_DIM // 2))
    # The output has the size of the queries.
    extra = peak_bytes(lambda: attend(*states)) - states[0].nbytes
    assert 0 < extra <= GIGABYTE // 128 + (8 << 20)  # blocks and segments keep their size
    rope = table(scheme, HEADS, HEAD_DIM // 2)
    assert num_parts(AttentionInputs(*states, rope, 0, 0.1)) == 16  # type: ignore[arg-type]


@over_schemes
@pytest.mark.parametrize("kv_heads", [2, 4])
def test_parts_of_heads_give_what_all_heads_give(scheme, kv_heads, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(2, 4, 70, 8, generator=generator, dtype=torch.float64)
    key, value = torch.randn(2, 2, kv_heads, 70, 8, generator=generator, dtype=torch.float64)
    rope = table(scheme, kv_heads, 4)
    if rope.inv_freq.ndim == 2:
        rope = RopeTable(np.repeat(rope.inv_freq, 4 // kv_heads, axis=0))
    attend = layer(scheme, rope)
    whole = attend(query, key, value)
    monkeypatch.setattr(registered, "_TEMPORARIES", 1)
    assert num_parts(AttentionInputs(query, key, value, rope, 0, 0.1)) == kv_heads
    torch.testing.assert_close(attend(query, key, value), whole, rtol=0, atol=1e-13)
    # Pieces of a text, over a cache that keeps no rotated keys.
    later = attend(query[:, :, 60:], key, value)
    torch.testing.assert_close(later, whole[:, 60:], rtol=0, atol=1e-12)
