"""Greedy decoding, with one code path for all methods.

A batch contains as many prompts as fit its token budget. The prompts of each length have their own
cache, so there is no padding (`lce_core.attention.cache`). With inserted tokens or the flash-attn
package, all prompts of a batch have the same length. A prompt passes through the decoder in chunks
that fill a key-value cache. Frequencies are fixed in advance for prompt plus new tokens, so cached
keys stay valid.

In half precision each prompt is processed alone, in pieces at fixed positions
(`lce_core.evaluation.passes`), and reuses only whole pieces that it shares with the previous
prompt.

In fp32, prompts with a common prefix share its keys and values if that saves more work than
batching (`passes.pays`). With torch's own attention, such prompts are packed into one cache
under a mask (`packed_texts`). With attention schemes, they run one after the other on one cache,
which is cut back to the common prefix. Only prompts with equal frequencies share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from lce_core.attention.cache import PreallocatedCache, RaggedCache
from lce_core.errors import NonFiniteError, SpecError
from lce_core.evaluation import passes
from lce_core.evaluation.long_cell import LongCell, ragged, rows_of
from lce_core.evaluation.packed_texts import PackedTexts
from lce_core.evaluation.passes import (
    CHUNK,
    TokenIds,
    batches,
    bundles,
    pays,
    reusable,
    same_frequencies,
    sharing_order,
)
from lce_core.progress import Progress, no_progress

if TYPE_CHECKING:
    from transformers import DynamicCache

    from lce_core.extension.extended_model import ExtendedModel

Stop = Callable[[TokenIds], bool]
"""Rule called with an answer's token ids; True if further tokens cannot change the score."""
Follow = Callable[[list[int] | None, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class _Settings:
    max_new_tokens: int
    stop_rules: Sequence[Stop]
    """One stopping rule per prompt, called with the ids generated so far; True ends the answer."""
    batch_tokens: int
    chunk: int
    share_prefixes: bool
    cell: LongCell | None = None

    def kept(
        self, texts: Sequence[TokenIds], batch: Sequence[int], decode: Callable[[], list[TokenIds]]
    ) -> list[TokenIds]:
        """Return the answers of a batch that an interrupted run of the cell kept, or decode."""
        if self.cell is None:
            return decode()
        inputs = [np.array([*batch, self.max_new_tokens]), *(texts[index] for index in batch)]
        part = self.cell.part(inputs, lambda: ragged("answers", decode()))
        return rows_of(part, "answers")


def generate(
    model: ExtendedModel,
    prompts: Sequence[NDArray[np.integer]] | NDArray[np.integer],
    *,
    max_new_tokens: int,
    stop: Stop | Sequence[Stop] | None = None,
    batch_tokens: int,
    chunk: int = CHUNK,
    share_prefixes: bool = True,
    cell: LongCell | None = None,
    report: Progress = no_progress,
) -> list[TokenIds]:
    """Generate the most likely continuation of each prompt, token by token.

    Args:
      prompts: token ids of each prompt; lengths may differ and are at least 1.
      stop: rule that ends a continuation early, one for all prompts or one per prompt. The model's
        own end-of-sequence token always ends a continuation.
      batch_tokens: maximum tokens of a forward pass, of all prompts of a batch together (a single
        longer prompt is a batch of its own), and of the tokens that further prompts and their
        answers add to a shared cache. Ignored in half precision.
      chunk: maximum tokens of a prompt per forward pass. Ignored in half precision.
      cell: keeps the answers of a long cell, except of prompts that share a cache in fp32.
      report: called with (prompts done, total prompts) for each finished prompt.

    Returns:
      Generated token ids for each prompt, including the token that ended the continuation.
    """
    texts = [np.asarray(prompt, dtype=np.int64) for prompt in prompts]
    shortest = min(map(len, texts), default=0)
    if shortest < 1 or max_new_tokens < 1:
        raise SpecError(
            "generate",
            f"{len(texts)} prompts, the shortest of {shortest} tokens, and max_new_tokens"
            f" {max_new_tokens}",
            "at least 1 prompt, at least 1 token in each prompt, and max_new_tokens of at least 1",
            "remove empty prompts, or raise max_new_tokens",
        )
    rules = stop if isinstance(stop, Sequence) else [stop] * len(texts)
    stop_rules = [stop_rule(model, rule) for rule in rules]
    if model.coarse:
        batch_tokens = chunk = passes.PIECE
    settings = _Settings(max_new_tokens, stop_rules, batch_tokens, chunk, share_prefixes, cell)
    answers: dict[int, TokenIds] = {}
    for group in same_frequencies(model, texts, max_new_tokens):
        model.begin_request(max(len(texts[index]) for index in group) + max_new_tokens)
        share = share_prefixes and not model.coarse and pays([texts[index] for index in group])
        decode = _one_by_one if model.coarse else _sharing if share else _in_batches
        for index, answer in decode(model, texts, group, settings):
            answers[index] = answer
            report(len(answers), len(texts))
    return [answers[index] for index in range(len(texts))]


def _one_by_one(
    model: ExtendedModel, texts: Sequence[TokenIds], group: Sequence[int], settings: _Settings
) -> Iterator[tuple[int, TokenIds]]:
    share = settings.share_prefixes
    order = sharing_order([texts[index] for index in group]) if share else range(len(group))
    # `held` is the prompt whose whole pieces are reused from the cache. Keys of its answer come
    # from single-token passes, so they are never reused: their last bits could differ.
    room = max(len(texts[index]) for index in group) + settings.max_new_tokens
    cache: DynamicCache = model.new_cache(room)
    held = np.empty(0, dtype=np.int64)

    def decode(index: int) -> list[TokenIds]:
        nonlocal cache, held
        kept = reusable(held, texts[index]) // passes.PIECE * passes.PIECE if share else 0
        if kept:
            model.cut_back(cache, kept)
        else:
            cache = model.new_cache(room)
        states = _prefill(model, torch.from_numpy(texts[index][None, kept:]), settings, cache)
        held = texts[index]
        return _answers(model, [index], states, settings, cache)

    for index in (group[place] for place in order):
        (answer,) = settings.kept(texts, [index], partial(decode, index))
        yield index, answer


def _in_batches(
    model: ExtendedModel, texts: Sequence[TokenIds], group: Sequence[int], settings: _Settings
) -> Iterator[tuple[int, TokenIds]]:
    def decode(batch: Sequence[int]) -> list[TokenIds]:
        states: list[torch.Tensor] = []
        caches: list[PreallocatedCache] = []
        for length, same in groupby(batch, key=lambda index: len(texts[index])):
            prompts = torch.from_numpy(np.stack([texts[index] for index in same]))
            caches.append(model.new_cache(length + settings.max_new_tokens))
            states.append(_prefill(model, prompts, settings, caches[-1]))
        cache: DynamicCache = caches[0] if len(caches) == 1 else RaggedCache(caches)
        return _answers(model, batch, torch.cat(states), settings, cache)

    lengths = [len(texts[index]) for index in group]
    for places in batches(lengths, settings.batch_tokens, mixed=model.mixes_lengths):
        batch = [group[place] for place in places]
        yield from zip(batch, settings.kept(texts, batch, partial(decode, batch)), strict=True)


def _sharing(
    model: ExtendedModel, texts: Sequence[TokenIds], group: Sequence[int], settings: _Settings
) -> Iterator[tuple[int, TokenIds]]:
    order = [group[place] for place in sharing_order([texts[index] for index in group])]
    limit = settings.batch_tokens if model.packs else 0
    # `held` is the text whose keys are in the cache; the next bundle keeps the common prefix.
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
            states = _prefill(model, rest, settings, cache)
            answers = _answers(model, bundle, states, settings, cache)
            # The last token of an answer is never fed to the model, so the cache has no keys for
            # it.
            held = np.concatenate([first, answers[0][:-1]])
        else:
            members = [texts[index] for index in bundle]
            chunk = min(settings.chunk, settings.batch_tokens)
            packed = PackedTexts(model, members, cache, kept, chunk)
            answers = _answers_packed(model, bundle, packed, settings)
            # Texts are in lexicographic order, so the last one shares the most with the next
            # bundle.
            held = members[-1]
            if bundle is not parts[-1]:
                cache = packed.cache_of(-1, len(held))
        yield from zip(bundle, answers, strict=True)


@torch.no_grad()
def _prefill(
    model: ExtendedModel, prompts: torch.Tensor, settings: _Settings, cache: DynamicCache
) -> torch.Tensor:
    """Process prompts (batch, tokens); return the last states (batch, hidden_size)."""
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
    """Generate answers to the texts in the cache; `states` belong to their last tokens."""

    def follow(kept: list[int] | None, tokens: torch.Tensor) -> torch.Tensor:
        if kept is not None:
            cache.batch_select_indices(torch.tensor(kept, device=tokens.device))
        return model.hidden_states(tokens[:, None], cache)[:, -1]

    stop_rules = [settings.stop_rules[index] for index in batch]
    return greedy(model, stop_rules, settings.max_new_tokens, states, follow)


@torch.no_grad()
def _answers_packed(
    model: ExtendedModel, batch: Sequence[int], packed: PackedTexts, settings: _Settings
) -> list[TokenIds]:
    # Numbers, within the pack, of the texts whose answers have not ended.
    running = list(range(len(batch)))

    def follow(kept: list[int] | None, tokens: torch.Tensor) -> torch.Tensor:
        if kept is not None:
            running[:] = [running[place] for place in kept]
        return packed.follow(running, tokens)

    stop_rules = [settings.stop_rules[index] for index in batch]
    return greedy(model, stop_rules, settings.max_new_tokens, packed.prefill(), follow)


def greedy(
    model: ExtendedModel,
    stop_rules: Sequence[Stop],
    max_new_tokens: int,
    states: torch.Tensor,
    follow: Follow,
) -> list[TokenIds]:
    """Generate an answer to each text, token by token, and return the answers' token ids.

    Args:
      states: hidden states (texts, hidden_size) of the last token of each text.
      follow: processes one more token of each unfinished text and returns its hidden states. It
        gets the unfinished texts, as indices into the texts of the previous call (None if none has
        ended since), and their next tokens.
    """
    answers: list[list[int]] = [[] for _ in stop_rules]
    # Numbers of the unfinished texts; states and cache have one row for each of them.
    running = list(range(len(stop_rules)))
    while True:
        number = len(answers[running[0]]) + 1
        logits = finite_logits(model, states, f"token {number} of {len(states)} answers")
        # Never generate the method's inserted token; it is not text.
        if model.inserter:
            logits[:, model.inserter.token] = -torch.inf
        tokens = logits.argmax(dim=-1)
        for text, token in zip(running, tokens.tolist(), strict=True):
            answers[text].append(token)
        kept = [
            place
            for place, text in enumerate(running)
            if len(answers[text]) < max_new_tokens and not stop_rules[text](np.array(answers[text]))
        ]
        if not kept:
            return [np.array(answer, dtype=np.int64) for answer in answers]
        fewer = kept if len(kept) < len(running) else None
        running = [running[place] for place in kept]
        states = follow(fewer, tokens[kept])


def stop_rule(model: ExtendedModel, stop: Stop | None) -> Stop:
    """Return a rule that ends an answer at the end-of-sequence token or when `stop` ends it."""
    end = getattr(model.model.generation_config, "eos_token_id", None)
    ends = set(end) if isinstance(end, list) else {end}
    return lambda ids: int(ids[-1]) in ends or (stop is not None and stop(ids))


def finite_logits(model: ExtendedModel, states: torch.Tensor, where: str) -> torch.Tensor:
    """Return the logits (n, vocabulary) in fp32; NaN and infinity raise NonFiniteError."""
    logits: torch.Tensor = model.model.get_output_embeddings()(states).float()
    # amin and amax are both NaN if any logit is NaN.
    extremes = torch.cat([logits.amin(dim=-1), logits.amax(dim=-1)])
    if not bool(torch.isfinite(extremes).all()):
        raise NonFiniteError(
            where,
            "NaN or infinite logits",
            "finite logits",
            "check the checkpoint, or evaluate with precision: fp32",
        )
    return logits
