"""Greedy decoding, for all methods through one code path.

A batch holds as many prompts as its tokens allow, each in a cache of its own length, so there is no
padding: custom attention sees plain positions, and what is not attention takes all texts' next
tokens at once (`lce_core.attention.cache`). Inserted tokens and the flash-attn package want prompts
of one length in a batch. A prompt passes through the decoder in chunks that fill a key-value cache;
the vocabulary projection is applied to the last position only. The method's frequencies are fixed
before, for prompt plus new tokens, so that cached keys stay valid. A sequence that is finished
leaves its batch.

In half precision every prompt is answered by itself, in pieces at fixed places
(`lce_core.evaluation.passes`), and whole pieces that prompts share are kept from one to the next.
Else prompts that begin alike share what they have in common, where that saves more than batches do
(`lce_core.evaluation.shared_prefixes`): side by side in one cache under a mask
(`lce_core.evaluation.packed_texts`), or, for methods with an attention of their own, one after the
other with one cache that is cut back. Only prompts under the same frequencies share: a table that
follows the length is another one for another length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from lce_core.attention.cache import PreallocatedCache, RaggedCache
from lce_core.errors import SpecError
from lce_core.evaluation import passes
from lce_core.evaluation.greedy import Stop, greedy, stop_rule
from lce_core.evaluation.packed_texts import PackedTexts
from lce_core.evaluation.passes import CHUNK, batches, whole_pieces
from lce_core.evaluation.shared_prefixes import (
    TokenIds,
    bundles,
    num_distinct_tokens,
    reusable,
    sharing_order,
)
from lce_core.reports import Progress, no_progress

if TYPE_CHECKING:
    from transformers import DynamicCache

    from lce_core.extension.extended_model import ExtendedModel

_WORTH_SHARING = 2 / 3
"""Part of the prompts' tokens that may be left for a shared cache to pay: texts may pass singly."""


@dataclass(frozen=True)
class _Settings:
    max_new_tokens: int
    ended: Sequence[Stop]
    """For each prompt."""
    batch_tokens: int
    chunk: int
    share_prefixes: bool


_Way = Callable[
    ["ExtendedModel", Sequence[TokenIds], Sequence[int], _Settings],
    Iterator[tuple[int, TokenIds]],
]


def generate(
    model: ExtendedModel,
    prompts: Sequence[NDArray[np.integer]] | NDArray[np.integer],
    *,
    max_new_tokens: int,
    stop: Stop | Sequence[Stop] | None = None,
    batch_tokens: int,
    chunk: int = CHUNK,
    share_prefixes: bool = True,
    report: Progress = no_progress,
) -> list[TokenIds]:
    """The most likely continuation of each prompt, token by token.

    Args:
      model: the extended model.
      prompts: token ids of each prompt, of any lengths from 1.
      max_new_tokens: longest continuation.
      stop: ends a sequence early, one rule for all or one for each prompt; so does the model's own
        end-of-sequence token.
      batch_tokens: upper limit of tokens in one forward pass, and of prompt tokens in one batch
        (one prompt at least) or beside the first prompt of a shared cache; half precision takes no
        notice of it.
      chunk: longest piece of the prompts that is processed at once; the same holds.
      share_prefixes: process what prompts have in common once, where that is less work.
      report: called with (prompts done, prompts in all) after each batch.

    Returns:
      For each prompt the generated ids, the one that ended it included.

    Raises:
      SpecError: empty prompts or nothing to generate.
      NonFiniteError: logits are NaN or infinite.
    """
    texts = [np.asarray(prompt, dtype=np.int64) for prompt in prompts]
    shortest = min(map(len, texts), default=0)
    if shortest < 1 or max_new_tokens < 1:
        raise SpecError(
            "generate",
            f"prompts of {shortest} tokens, {max_new_tokens} new tokens",
            "at least 1 of both",
            "correct the request",
        )
    rules = stop if isinstance(stop, Sequence) else [stop] * len(texts)
    ended = [stop_rule(model, rule) for rule in rules]
    if model.coarse:
        batch_tokens = chunk = passes.PIECE
    settings = _Settings(max_new_tokens, ended, batch_tokens, chunk, share_prefixes)
    answers: dict[int, TokenIds] = {}
    for group in _same_frequencies(model, texts, max_new_tokens):
        model.begin_request(max(len(texts[index]) for index in group) + max_new_tokens)
        way = _one_by_one if model.coarse else _together(texts, group, settings)
        for index, answer in way(model, texts, group, settings):
            answers[index] = answer
            report(len(answers), len(texts))
    return [answers[index] for index in range(len(texts))]


def _same_frequencies(
    model: ExtendedModel, texts: Sequence[TokenIds], max_new_tokens: int
) -> list[list[int]]:
    """Indices of the texts, grouped by the frequencies that their requests fix."""
    keys = {length: model.request_key(length + max_new_tokens) for length in {*map(len, texts)}}
    groups: dict[object, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(keys[len(text)], []).append(index)
    return list(groups.values())


def _together(texts: Sequence[TokenIds], group: Sequence[int], settings: _Settings) -> _Way:
    members = [texts[index] for index in group]
    left = num_distinct_tokens(members, sharing_order(members))
    pays = left <= _WORTH_SHARING * sum(map(len, members))
    return _sharing if settings.share_prefixes and pays else _in_batches


def _one_by_one(
    model: ExtendedModel, texts: Sequence[TokenIds], group: Sequence[int], settings: _Settings
) -> Iterator[tuple[int, TokenIds]]:
    share = settings.share_prefixes
    order = sharing_order([texts[index] for index in group]) if share else range(len(group))
    # `held` is the prompt whose pieces lie in the cache; an answer's keys come from other passes.
    room = max(len(texts[index]) for index in group) + settings.max_new_tokens
    cache: DynamicCache = model.new_cache(room)
    held = np.empty(0, dtype=np.int64)
    for index in (group[place] for place in order):
        kept = whole_pieces(reusable(held, texts[index])) if share else 0
        if kept:
            model.cut_back(cache, kept)
        else:
            cache = model.new_cache(room)
        rest = torch.from_numpy(texts[index][None, kept:])
        (answer,) = _continue(model, [index], rest, settings, cache)
        held = texts[index]
        yield index, answer


def _in_batches(
    model: ExtendedModel, texts: Sequence[TokenIds], group: Sequence[int], settings: _Settings
) -> Iterator[tuple[int, TokenIds]]:
    lengths = [len(texts[index]) for index in group]
    mixed = model.mixes_lengths
    for places in batches(lengths, settings.batch_tokens, mixed=mixed):
        batch = [group[place] for place in places]
        states: list[torch.Tensor] = []
        caches: list[PreallocatedCache] = []
        for length, same in groupby(batch, key=lambda index: len(texts[index])):
            prompts = torch.from_numpy(np.stack([texts[index] for index in same]))
            caches.append(model.new_cache(length + settings.max_new_tokens))
            states.append(_prefill(model, prompts, settings, caches[-1]))
        cache: DynamicCache = caches[0] if len(caches) == 1 else RaggedCache(caches)
        answers = _answers(model, batch, torch.cat(states), settings, cache)
        yield from zip(batch, answers, strict=True)


def _sharing(
    model: ExtendedModel, texts: Sequence[TokenIds], group: Sequence[int], settings: _Settings
) -> Iterator[tuple[int, TokenIds]]:
    order = [group[place] for place in sharing_order([texts[index] for index in group])]
    limit = settings.batch_tokens if model.packs else 0
    # `held` is the text whose keys lie in the cache: the next bundle keeps what it begins with.
    room = max(len(texts[index]) for index in order) + settings.max_new_tokens
    cache: DynamicCache = model.new_cache(room)
    held = np.empty(0, dtype=np.int64)
    parts = bundles(texts, order, limit, settings.max_new_tokens)
    for bundle in parts:
        first = texts[bundle[0]]
        kept = reusable(held, first)
        model.cut_back(cache, kept)
        if len(bundle) == 1:
            rest = torch.from_numpy(first[None, kept:])
            answers = _continue(model, bundle, rest, settings, cache)
            # The last token of an answer is chosen and never fed, so it has no keys.
            held = np.concatenate([first, answers[0][:-1]])
        else:
            members = [texts[index] for index in bundle]
            chunk = min(settings.chunk, settings.batch_tokens)
            packed = PackedTexts(model, members, cache, kept, chunk)
            answers = _continue_packed(model, bundle, packed, settings)
            # In lexicographic order the last text is nearest to the next bundle's first.
            held = members[-1]
            if bundle is not parts[-1]:
                cache = packed.cache_of(-1, len(held))
        yield from zip(bundle, answers, strict=True)


def _continue(
    model: ExtendedModel,
    batch: Sequence[int],
    prompts: torch.Tensor,
    settings: _Settings,
    cache: DynamicCache,
) -> list[TokenIds]:
    """Answers prompts (batch, tokens) that follow the text in the cache."""
    states = _prefill(model, prompts, settings, cache)
    return _answers(model, batch, states, settings, cache)


@torch.no_grad()
def _prefill(
    model: ExtendedModel, prompts: torch.Tensor, settings: _Settings, cache: DynamicCache
) -> torch.Tensor:
    """States (batch, hidden_size) after prompts (batch, tokens) that follow what is cached."""
    chunk = min(settings.chunk, max(1, settings.batch_tokens // len(prompts)))
    for piece in prompts.to(model.model.device).split(chunk, dim=1):
        states = model.hidden_states(piece, cache)[:, -1]
    return states


@torch.no_grad()
def _answers(
    model: ExtendedModel,
    batch: Sequence[int],
    states: torch.Tensor,
    settings: _Settings,
    cache: DynamicCache,
) -> list[TokenIds]:
    """Answers to texts, given the states (batch, hidden_size) after them and what is cached."""

    def follow(kept: list[int] | None, tokens: torch.Tensor) -> torch.Tensor:
        if kept is not None:
            cache.batch_select_indices(torch.tensor(kept, device=tokens.device))
        return model.hidden_states(tokens[:, None], cache)[:, -1]

    ended = [settings.ended[index] for index in batch]
    return greedy(model, ended, settings.max_new_tokens, states, follow)


@torch.no_grad()
def _continue_packed(
    model: ExtendedModel, batch: Sequence[int], packed: PackedTexts, settings: _Settings
) -> list[TokenIds]:
    running = list(range(len(batch)))

    def follow(kept: list[int] | None, tokens: torch.Tensor) -> torch.Tensor:
        if kept is not None:
            running[:] = [running[place] for place in kept]
        return packed.follow(running, tokens)

    ended = [settings.ended[index] for index in batch]
    return greedy(model, ended, settings.max_new_tokens, packed.prefill(), follow)
