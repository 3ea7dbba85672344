"""Several texts with common prefixes in one key-value cache that stores shared tokens once.

The texts are in lexicographic order. The cache stores for each text the tokens that it does not
share with the previous text. Short segments are processed together in one forward pass, with a mask
that says which text sees which key. A long segment is processed alone and without a mask, after a
copy of its own prefix, so no time is spent on keys of other texts.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from lce_core.evaluation.passes import TokenIds, reusable
from lce_core.extension.extended_model import ExtendedModel

PACKED = 512
"""Maximum tokens of several texts in one forward pass with a mask."""


class PackedTexts:
    """Texts with common prefixes, processed side by side in one key-value cache.

    `model` has `packs` and a begun request. `cache` has the keys and values of the first `held`
    tokens of the first text, but not all of them, and is extended in place. `tails` are the numbers
    of last tokens whose hidden states `tail_states` returns, by default one for every text.
    """

    def __init__(
        self,
        model: ExtendedModel,
        texts: Sequence[TokenIds],
        cache: DynamicCache,
        held: int,
        chunk: int,
        tails: Sequence[int] | None = None,
    ) -> None:
        self._model, self._cache, self._chunk = model, cache, chunk
        self._lengths = np.array([len(text) for text in texts])
        self._tails = tails or [1] * len(texts)
        later = zip(pairwise(texts), self._tails[1:], strict=True)
        shared = [0, *(reusable(before, text, tail) for (before, text), tail in later)]
        own = [text[kept:] for text, kept in zip(texts, shared, strict=True)]
        seen, self._starts = _who_sees_what(shared, [len(segment) for segment in own])
        # (texts, keys) bool with a column for every token of all segments, cached or not.
        self._seen = torch.from_numpy(seen).to(model.model.device)
        self._ids = torch.from_numpy(np.concatenate(own)).to(model.model.device)
        self._held = held
        self._running = list(range(len(texts)))

    def prefill(self) -> torch.Tensor:
        return torch.stack([states[-1] for states in self.tail_states()])

    @torch.no_grad()
    def tail_states(self) -> list[torch.Tensor]:
        """Process all texts; return the hidden states (tail, hidden_size) of each text's tail."""
        ends = [*self._starts[1:], len(self._ids)]
        states = {}
        for first, last in self._passes(ends):
            begin, end = max(self._starts[first], self._held), ends[last]
            alone = first == last
            found = self._alone(first, begin, end) if alone else self._together(begin, end)
            # A pass returns the states (some, hidden_size) of its last tokens only, so index from
            # its end.
            for text in range(first, last + 1):
                stop = len(found) + ends[text] - end
                states[text] = found[stop - self._tails[text] : stop]
        return [states[text] for text in range(len(ends))]

    def follow(self, kept: Sequence[int] | None, ids: torch.Tensor) -> torch.Tensor:
        """Process one more token of each unfinished text, as `decoding.Follow` says."""
        if kept is not None:
            self._running = [self._running[place] for place in kept]
        texts = self._running
        # Append one column per new key; only the key's own text sees it.
        selected = torch.tensor(texts, device=ids.device)
        new = torch.zeros(len(self._seen), len(texts), dtype=torch.bool, device=ids.device)
        new[selected, torch.arange(len(texts), device=ids.device)] = True
        self._seen = torch.cat([self._seen, new], dim=1)
        positions = torch.from_numpy(self._lengths[texts]).to(ids.device)
        self._lengths[texts] += 1
        return self._model.packed_states(ids, positions, self._seen[selected], self._cache)

    def cache_of(self, text: int, num_tokens: int) -> DynamicCache:
        """Return a cache of the text's first `num_tokens` tokens, the shared one if it fits."""
        if self._cache.get_seq_length() == num_tokens:
            return self._cache
        own = self._seen[text].nonzero()[:num_tokens, 0]
        layers: list[Any] = self._cache.layers
        cache = self._model.new_cache(int(self._lengths[text]))
        for index, layer in enumerate(layers):
            cache.update(layer.keys[:, :, own], layer.values[:, :, own], index)
        return cache

    def _passes(self, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
        limit, first = min(PACKED, self._chunk), 0
        for text in range(1, len(ends)):
            begin = max(self._starts[first], self._held)
            if ends[text] - begin > limit:
                yield first, text - 1
                first = text
        yield first, len(ends) - 1

    def _together(self, begin: int, end: int) -> torch.Tensor:
        columns = torch.arange(begin, end, device=self._ids.device)
        starts = torch.tensor(self._starts, device=columns.device)
        owners = torch.searchsorted(starts, columns, right=True) - 1
        # A token sees the earlier keys of its own text (tokens, end). The number of visible keys
        # without the token itself is its position.
        sees = self._seen[owners, :end]
        mask = sees & (torch.arange(end, device=columns.device) <= columns[:, None])
        return self._model.packed_states(
            self._ids[begin:end], mask.sum(dim=1) - 1, mask, self._cache
        )

    def _alone(self, text: int, begin: int, end: int) -> torch.Tensor:
        before = int(self._seen[text, :begin].sum())
        own = self.cache_of(text, before)
        states = tail_of_chunks(
            self._model, self._ids[begin:end], own, self._chunk, self._tails[text]
        )
        # Append the new keys to the shared cache, where the mask expects them.
        if own is not self._cache:
            layers: list[Any] = own.layers
            for index, layer in enumerate(layers):
                new = (layer.keys[:, :, before:], layer.values[:, :, before:])
                self._cache.update(*new, index)
        return states


def tail_of_chunks(
    model: ExtendedModel, ids: torch.Tensor, cache: DynamicCache, chunk: int, tail: int
) -> torch.Tensor:
    """Process tokens (tokens,) after those in the cache, at most `chunk` per forward pass."""
    pieces = ids[None].split(chunk, dim=1)
    return torch.cat([model.hidden_states(piece, cache)[0, -tail:] for piece in pieces])[-tail:]


def _who_sees_what(
    shared: Sequence[int], sizes: Sequence[int]
) -> tuple[NDArray[np.bool_], list[int]]:
    """Return which text (row) sees which key (column), and where each text's own keys start.

    `shared` has the number of tokens that each text shares with the previous text.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    seen = np.zeros((len(shared), starts[-1]), dtype=np.bool_)
    for row, kept in enumerate(shared):
        # The previous text may itself share its prefix, so copy its first visible keys in order.
        if kept:
            seen[row, np.flatnonzero(seen[row - 1])[:kept]] = True
        seen[row, starts[row] : starts[row + 1]] = True
    return seen, starts[:-1].tolist()
