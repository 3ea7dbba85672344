"""Key-value caches that append in place to preallocated memory.

transformers' DynamicCache concatenates old and new states for every token, which moves the whole
cache three times while attention reads it once.
"""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer

from lce_core.attention.placement import PlacedKeys, Placement


class PreallocatedLayer(DynamicLayer):
    """Keys and values of one layer, also rotated; memory grows beyond `capacity` tokens."""

    keys: Any
    values: Any

    def __init__(self, capacity: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._capacity = capacity
        self._rooms: tuple[Tensor, Tensor] | None = None
        self._placed: dict[Placement, PlacedKeys] = {}

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Any, Any]:
        """Append states (batch, kv_heads, tokens, head_dim); return (self, self)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        stop = start + key_states.shape[-2]
        key_room, value_room = self._rooms_for(key_states, value_states, stop)
        key_room[:, :, start:stop] = key_states
        value_room[:, :, start:stop] = value_states
        self.keys, self.values = key_room[:, :, :stop], value_room[:, :, :stop]
        return self, self

    def placed(self, placement: Placement, seen: slice) -> Tensor:
        held = self._placed.setdefault(placement, PlacedKeys(placement))
        capacity = 0 if self._rooms is None else self._rooms[0].shape[2]
        return held.get(self.keys, seen, capacity)

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last `-tokens_to_remove` tokens; the sign is that of transformers."""
        super().crop(tokens_to_remove)
        for held in self._placed.values():
            held.cut_back(self.get_seq_length())

    def batch_select_indices(self, indices: Tensor) -> None:
        tokens = self.get_seq_length()
        if self._rooms is None or not tokens:
            return
        keys, values = (room.index_select(0, indices) for room in self._rooms)
        self._rooms = keys, values
        self.keys, self.values = keys[:, :, :tokens], values[:, :, :tokens]
        for held in self._placed.values():
            held.select(indices)

    def _rooms_for(self, keys: Tensor, values: Tensor, stop: int) -> tuple[Tensor, Tensor]:
        held, rooms = self.get_seq_length(), self._rooms
        if rooms is not None and stop <= rooms[0].shape[2]:
            return rooms
        # Growing by half keeps the total cost of copies linear in the length of the text.
        tokens = max(self._capacity, stop if rooms is None else stop + stop // 2)
        made = tuple(
            states.new_empty(*states.shape[:2], tokens, states.shape[3])
            for states in (keys, values)
        )
        if held:
            made[0][:, :, :held], made[1][:, :, :held] = self.keys, self.values
        self._rooms = made[0], made[1]
        return self._rooms


class PreallocatedCache(DynamicCache):
    """A cache that passes PreallocatedLayer objects to attention in place of keys and values."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.layer_class_to_replicate: Any = partial(PreallocatedLayer, capacity)

    @property
    def num_texts(self) -> int:
        layer: Any = self.layers[0]
        return len(layer.keys)


def groups_of(states: Tensor, layers: Sequence[PreallocatedLayer]) -> Sequence[Tensor]:
    """Split states (texts, ...) along the batch: each layer gets the states of its own texts."""
    groups: Sequence[Tensor] = states.split([len(layer.keys) for layer in layers])
    return groups


class RaggedCache(DynamicCache):
    """Cache for texts of several lengths, decoded together: one filled cache per length."""

    def __init__(self, caches: Sequence[PreallocatedCache]) -> None:
        super().__init__()
        self._caches = list(caches)

    def update(
        self,
        key_states: Tensor,
        value_states: Tensor,
        layer_idx: int,
        *_: Any,
        **__: Any,
    ) -> tuple[Any, Any]:
        """Append states (texts, kv_heads, 1, head_dim); return the layers for `over_caches`."""
        layers: tuple[Any, ...] = tuple(cache.layers[layer_idx] for cache in self._caches)
        states = groups_of(key_states, layers), groups_of(value_states, layers)
        for layer, keys, values in zip(layers, *states, strict=True):
            layer.update(keys, values)
        return layers, layers

    def next_positions(self, device: torch.device) -> Tensor:
        """Return the position of each text's next token, (texts, 1)."""
        lengths: list[int] = []
        for cache in self._caches:
            lengths += [cache.get_seq_length()] * cache.num_texts
        return torch.tensor(lengths, device=device)[:, None]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return max(cache.get_seq_length(layer_idx) for cache in self._caches)

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        # transformers builds no mask for single queries.
        longest = max(self._caches, key=lambda cache: cache.get_seq_length(layer_idx))
        return longest.get_mask_sizes(query_length, layer_idx)

    def batch_select_indices(self, indices: Tensor) -> None:
        kept: list[PreallocatedCache] = []
        first, remaining = 0, indices.tolist()
        for cache in self._caches:
            size = cache.num_texts
            own = [index - first for index in remaining if first <= index < first + size]
            first += size
            if own:
                kept.append(cache)
            if 0 < len(own) < size:
                cache.batch_select_indices(torch.tensor(own, device=indices.device))
        self._caches = kept
