"""Caches that append in place, against DynamicCache and keys rotated anew in every pass."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import DynamicCache

from lce_core.attention.cache import PreallocatedCache
from lce_core.attention.placement import PlacedKeys, Placement
from lce_core.attention.schemes import Line
from lce_core.contracts.tiny_models import BASES, TARGET, fits, stock, tokens
from lce_core.extension.extended_model import ExtendedModel
from lce_core.extension.extending import extend
from lce_core.methods import METHODS
from lce_core.rope import RopeTable
from tests.support.extended_models import method, over_methods

pytestmark = pytest.mark.usefixtures("inference")

TABLE = RopeTable(1e4 ** (-np.arange(4) / 4))


def fed(model: ExtendedModel, cache: DynamicCache, pieces: tuple[torch.Tensor, ...]) -> Any:
    return torch.cat([model.hidden_states(piece, cache) for piece in pieces], dim=1)


@over_methods
def test_states_are_those_over_transformers_own_cache(name):
    chosen, turn = method(name), METHODS.names().index(name) % 3
    base = next(base for base in (*BASES[turn:], *BASES) if fits(chosen, base))
    model = extend(stock(base), base, chosen, target=TARGET)
    model.begin_request(40)
    ours, theirs = model.new_cache(40), DynamicCache()
    pieces = tokens(36, batch=3).split((20, 1, 1, 7, 1, 6), dim=1)
    exact: dict[str, Any] = {"rtol": 0, "atol": 1e-12}
    torch.testing.assert_close(fed(model, ours, pieces), fed(model, theirs, pieces), **exact)
    # Cut back below a window and read on, with other texts gone.
    for cache in (ours, theirs):
        model.cut_back(cache, 9)
        cache.batch_select_indices(torch.tensor([0, 2]))
    others = tokens(20, seed=1).split((5, 1, 1, 13), dim=1)
    torch.testing.assert_close(fed(model, ours, others), fed(model, theirs, others), **exact)
    assert ours.get_seq_length() == theirs.get_seq_length()


def test_what_is_there_stays_where_it_is():
    cache, step = PreallocatedCache(40), torch.ones(2, 3, 1, 8)
    cache.update(torch.ones(2, 3, 5, 8), torch.ones(2, 3, 5, 8), 0)
    layer: Any = cache.layers[0]
    places = layer.keys.data_ptr(), layer.values.data_ptr()
    for token in range(35):
        cache.update(step * token, -step * token, 0)
        keys, values = layer.keys, layer.values
        assert (keys.data_ptr(), values.data_ptr()) == places
        assert keys[1, 2, 5 + token, 7] == -values[1, 2, 5 + token, 7] == token
    # More room is made where texts are longer than was said.
    cache.update(step * 99, step, 0)
    assert layer.keys[0, 0, :, 0].tolist() == [1.0] * 5 + list(range(35)) + [99.0]


@given(
    st.integers(1, 5),
    st.integers(1, 3),
    st.sampled_from([None, 12]),
    st.lists(st.integers(-6, 5).filter(bool), min_size=1, max_size=12),
)
def test_placed_keys_are_keys_rotated_anew(
    window: int, group: int, ceiling: int | None, steps: list[int]
) -> None:
    # A text grows and is cut back; keys are those of the text as it is then.
    placement = Placement(TABLE, Line((group,)), ceiling)
    held, keys = PlacedKeys(placement), torch.empty(1, 2, 0, 8, dtype=torch.float64)
    for number, step in enumerate(steps):
        if step > 0:
            generator = torch.Generator().manual_seed(number)
            new = torch.randn(1, 2, step, 8, dtype=torch.float64, generator=generator)
            keys = torch.cat((keys, new), dim=2)
        else:
            keys = keys[:, :, : max(0, keys.shape[2] + step)]
            held.cut_back(keys.shape[2])
        if keys.shape[2]:
            seen = slice(max(0, keys.shape[2] - window), keys.shape[2])
            found = held.get(keys, seen, 30)
            assert torch.equal(found, placement.rotate(keys[:, :, seen], seen))


@pytest.mark.parametrize(("name", "rotated"), [("self_extend", 2), ("harpe", 1), ("rerope", 1)])
def test_a_token_rotates_its_own_key_alone(name, rotated, monkeypatch):
    model = extend(stock(BASES[0]), BASES[0], method(name), target=TARGET)
    model.begin_request(40)
    cache = model.new_cache(40)
    model.hidden_states(tokens(30), cache)
    sizes: list[int] = []
    rotate = Placement.rotate

    def counted(self: Placement, keys: torch.Tensor, seen: slice, *how: Any) -> torch.Tensor:
        sizes.append(keys.shape[2])
        return rotate(self, keys, seen, *how)

    monkeypatch.setattr(Placement, "rotate", counted)
    for token in tokens(6, seed=2).split(1, dim=1):
        sizes.clear()
        model.hidden_states(token, cache)
        assert sizes == [1] * rotated * 2  # layers
