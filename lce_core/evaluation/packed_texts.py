"""Many texts that begin alike in one key-value cache, each token that they share kept once.

The texts are put in lexicographic order, and the cache holds one segment of each: what it does not
share with the text before it. A boolean matrix says which text sees which key, so that the next
tokens of all texts, whatever their lengths, pass through the model as one row, at the positions
they have in their own text. What a text's tokens see is what they would see alone.

Short segments are packed into one pass under that mask. A long one passes by itself over a copy of
its own beginning, without mask, so that it costs no attention to keys of other texts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from lce_core.evaluation.shared_prefixes import TokenIds, reusable

if TYPE_CHECKING:
    from transformers import DynamicCache

    from lce_core.extension.extended_model import ExtendedModel

PACKED = 512
"""Tokens of several texts that pass together under a mask; longer segments pass by themselves."""


class PackedTexts:
    """Texts of one request under one model, fed side by side.

    Args:
      model: an extended model that `packs`, its request begun.
      texts: token ids of each, in lexicographic order.
      cache: keys and values of the first `held` tokens of the first text; extended in place.
      held: fewer tokens than the first text has.
      chunk: longest piece that is processed at once.
    """

    def __init__(
        self,
        model: ExtendedModel,
        texts: Sequence[TokenIds],
        cache: DynamicCache,
        held: int,
        chunk: int,
    ) -> None:
        self._model, self._cache, self._chunk = model, cache, chunk
        self._lengths = np.array([len(text) for text in texts])
        shared = [0, *(reusable(before, text) for before, text in pairwise(texts))]
        own = [text[kept:] for text, kept in zip(texts, shared, strict=True)]
        seen, self._starts = _who_sees_what(shared, [len(segment) for segment in own])
        # (texts, keys) bool; a key for each token of all segments, cached already or not.
        self._seen = torch.from_numpy(seen).to(model.model.device)
        self._ids = torch.from_numpy(np.concatenate(own)).to(model.model.device)
        self._held = held

    def prefill(self) -> torch.Tensor:
        """Processes all texts; the states (texts, hidden_size) after the last token of each."""
        ends = [*self._starts[1:], len(self._ids)]
        states = {}
        for first, last in self._passes(ends):
            begin, end = max(self._starts[first], self._held), ends[last]
            alone = first == last
            found = self._alone(first, begin, end) if alone else self._together(begin, end)
            # A pass returns its last tokens' states (some, hidden_size), so count from the end.
            for text in range(first, last + 1):
                states[text] = found[ends[text] - end - 1]
        return torch.stack([states[text] for text in range(len(ends))])

    def follow(self, texts: Sequence[int], ids: torch.Tensor) -> torch.Tensor:
        """Processes one more token of each of some texts.

        Args:
          texts: numbers of the texts, each once.
          ids: (texts,) their next tokens.

        Returns:
          States (texts, hidden_size) after them.
        """
        # The new keys follow all others: one column each, which only its own text sees.
        selected = torch.tensor(texts, device=ids.device)
        new = torch.zeros(len(self._seen), len(texts), dtype=torch.bool, device=ids.device)
        new[selected, torch.arange(len(texts), device=ids.device)] = True
        self._seen = torch.cat([self._seen, new], dim=1)
        positions = torch.from_numpy(self._lengths[texts]).to(ids.device)
        self._lengths[texts] += 1
        return self._model.packed_states(ids, positions, self._seen[selected], self._cache)

    def cache_of(self, text: int, num_tokens: int) -> DynamicCache:
        """A cache of the first tokens of one text alone; the one of all where that is it."""
        if self._cache.get_seq_length() == num_tokens:
            return self._cache
        own = self._seen[text].nonzero()[:num_tokens, 0]
        layers: list[Any] = self._cache.layers
        cache = self._model.new_cache(int(self._lengths[text]))
        for index, layer in enumerate(layers):
            cache.update(layer.keys[:, :, own], layer.values[:, :, own], index)
        return cache

    def _passes(self, ends: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(first, last) texts whose segments pass together, in order."""
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
        # A token sees the keys of its text that do not come after it, (tokens, end); as many as
        # lie before it in that text, itself aside, are its position.
        sees = self._seen[owners, :end]
        mask = sees & (torch.arange(end, device=columns.device) <= columns[:, None])
        return self._model.packed_states(
            self._ids[begin:end], mask.sum(dim=1) - 1, mask, self._cache
        )

    def _alone(self, text: int, begin: int, end: int) -> torch.Tensor:
        before = int(self._seen[text, :begin].sum())
        own = self.cache_of(text, before)
        for piece in self._ids[None, begin:end].split(self._chunk, dim=1):
            states = self._model.hidden_states(piece, own)
        # What passed over a copy is appended where the mask expects it: at the end of the cache.
        if own is not self._cache:
            layers: list[Any] = own.layers
            for index, layer in enumerate(layers):
                new = (layer.keys[:, :, before:], layer.values[:, :, before:])
                self._cache.update(*new, index)
        return states[0]


def _who_sees_what(
    shared: Sequence[int], sizes: Sequence[int]
) -> tuple[NDArray[np.bool_], list[int]]:
    """Which text (rows) has which key (columns) in it, and where each one's segment starts.

    Args:
      shared: tokens of each text that are those of the text before it.
      sizes: tokens of each text's own segment.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)])
    seen = np.zeros((len(shared), starts[-1]), dtype=np.bool_)
    for row, kept in enumerate(shared):
        # The text before may itself share its beginning: take the keys that it sees, in order.
        if kept:
            seen[row, np.flatnonzero(seen[row - 1])[:kept]] = True
        seen[row, starts[row] : starts[row + 1]] = True
    return seen, starts[:-1].tolist()
