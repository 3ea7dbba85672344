"""Greedy decoding, with one code path for all methods.

The prompts of each length in a batch have their own cache, so there is no padding
(`lce_core.attention.cache`). With inserted tokens or the flash-attn package, all prompts of a batch
have the same length. Frequencies are fixed in advance for prompt plus new tokens, so cached keys
stay valid.

In half precision each prompt is processed alone, in pieces at fixed positions (`passes`). In fp32,
prompts with a common prefix share its keys and values if that saves more work than batching
(`passes.pays`): with torch's own attention in one cache under a mask (`packed_texts`), with
attention schemes one after the other on one cache, which is cut back to the common prefix.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from lce_core.attention.cache import PreallocatedCache, RaggedCache
from lce_core.errors import NonFiniteError, SpecError
from lce_core.evaluation import passes
from lce_core.evaluation.cross_entropy import Head
from lce_core.evaluation.long_cell import LongCell, ragged, rows_of
from lce_core.evaluation.packed_texts import PackedTexts
from lce_core.evaluation.passes import CHUNK, TokenIds
from lce_core.extension.extended_model import ExtendedModel
from lce_core.progress import Progress, no_progress

Follow = Callable[[list[int] | None, torch.Tensor], torch.Tensor]
"""Processes one more token of each unfinished text and returns its hidden states. Gets the
unfinished texts, as indices into the texts of the previous call (None if none has ended since), and
their next tokens."""
Stop = Callable[[TokenIds], bool]
"""Rule called with an answer's token ids; True if further tokens cannot change the score."""


def generate(
    model: ExtendedModel,
    prompts: Sequence[NDArray[np.integer]] | NDArray[np.integer],
    *,
    max_new_tokens: int,
    stop: Sequence[Stop] | None = None,
    batch_tokens: int,
    chunk: int = CHUNK,
    share_prefixes: bool = True,
    cell: LongCell | None = None,
    report: Progress = no_progress,
) -> list[TokenIds]:
    """Generate the most likely continuation of each prompt, token by token.

    Args:
      prompts: token ids of each prompt; lengths may differ and are at least 1.
      stop: one rule per prompt that ends its continuation early. The model's own end-of-sequence
        token always ends a continuation and is part of the result.
      batch_tokens: maximum tokens of a forward pass, of all prompts of a batch together (a single
        longer prompt is a batch of its own), and of the tokens that further prompts and their
        answers add to a shared cache. Ignored in half precision, like `chunk`.
      chunk: maximum tokens of a prompt per forward pass.
      cell: keeps the answers of a long cell, except of prompts that share a cache in fp32.
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
    rules: Sequence[Stop | None] = stop or [None] * len(texts)
    stop_rules = [stop_rule(model, rule) for rule in rules]
    if model.coarse:
        batch_tokens = chunk = passes.PIECE
    limits = max_new_tokens, batch_tokens, chunk
    decoder = _Decoder(model, texts, stop_rules, *limits, share_prefixes, cell)
    answers: dict[int, TokenIds] = {}
    for group in passes.same_frequencies(model, texts, max_new_tokens):
        for index, answer in decoder.answers(group):
            answers[index] = answer
            report(len(answers), len(texts))
    return [answers[index] for index in range(len(texts))]


@dataclass(frozen=True, eq=False)
class _Decoder:
    model: ExtendedModel
    texts: Sequence[TokenIds]
    stop_rules: Sequence[Stop]
    """One per text."""
    max_new_tokens: int
    batch_tokens: int
    chunk: int
    share_prefixes: bool
    cell: LongCell | None

    def answers(self, group: Sequence[int]) -> Iterator[tuple[int, TokenIds]]:
        """Yield index and answer of each text of a group with equal frequencies."""
        members = [self.texts[index] for index in group]
        room = max(map(len, members)) + self.max_new_tokens
        self.model.begin_request(room)
        in_order = [group[place] for place in passes.sharing_order(members)]
        if self.model.coarse:
            return self._in_turn(in_order if self.share_prefixes else group, room)
        if self.share_prefixes and passes.pays(members):
            return self._in_turn(in_order, room)
        return self._in_batches(group)

    def _in_batches(self, group: Sequence[int]) -> Iterator[tuple[int, TokenIds]]:
        def decode(batch: Sequence[int]) -> list[TokenIds]:
            states: list[torch.Tensor] = []
            caches: list[PreallocatedCache] = []
            for length, same in groupby(batch, key=lambda index: len(self.texts[index])):
                prompts = torch.from_numpy(np.stack([self.texts[index] for index in same]))
                caches.append(self.model.new_cache(length + self.max_new_tokens))
                states.append(self._prefill(prompts, caches[-1]))
            cache: DynamicCache = caches[0] if len(caches) == 1 else RaggedCache(caches)
            return self._continued(
                batch, torch.cat(states), partial(next_states, self.model, cache)
            )

        lengths = [len(self.texts[index]) for index in group]
        for places in passes.batches(lengths, self.batch_tokens, mixed=self.model.mixes_lengths):
            batch = [group[place] for place in places]
            yield from zip(batch, self._kept(batch, partial(decode, batch)), strict=True)

    def _in_turn(self, order: Sequence[int], room: int) -> Iterator[tuple[int, TokenIds]]:
        # `held` is the text whose keys are in the cache; the next one keeps the common prefix.
        model, coarse = self.model, self.model.coarse
        cache: DynamicCache = model.new_cache(room)
        held = np.empty(0, dtype=np.int64)

        def decode(index: int) -> list[TokenIds]:
            nonlocal held
            text = self.texts[index]
            kept = passes.reusable(held, text)
            if coarse:
                kept = kept // passes.PIECE * passes.PIECE if self.share_prefixes else 0
            model.cut_back(cache, kept)
            states = self._prefill(torch.from_numpy(text[None, kept:]), cache)
            answers = self._continued([index], states, partial(next_states, model, cache))
            # The last token of an answer is never fed to the model, so the cache has no keys for
            # it. In half precision no key of an answer is reused: they come from single-token
            # passes, so their last bits could differ.
            held = text if coarse else np.concatenate([text, answers[0][:-1]])
            return answers

        limit = self.batch_tokens if model.packs and not coarse else 0
        parts = passes.bundles(self.texts, order, limit, self.max_new_tokens)
        for bundle in parts:
            if coarse:
                answers = self._kept(bundle, partial(decode, bundle[0]))
            elif len(bundle) == 1:
                answers = decode(bundle[0])
            else:
                members = [self.texts[index] for index in bundle]
                kept, chunk = passes.reusable(held, members[0]), min(self.chunk, self.batch_tokens)
                model.cut_back(cache, kept)
                packed = PackedTexts(model, members, cache, kept, chunk)
                answers = self._continued(bundle, packed.prefill(), packed.follow)
                # Texts are in lexicographic order, so the last one shares the most with the next
                # bundle.
                held = members[-1]
                if bundle is not parts[-1]:
                    cache = packed.cache_of(-1, len(held))
            yield from zip(bundle, answers, strict=True)

    def _kept(self, batch: Sequence[int], decode: Callable[[], list[TokenIds]]) -> list[TokenIds]:
        """Return the answers of a batch that an interrupted run of the cell kept, or decode."""
        if self.cell is None:
            return decode()
        texts = (self.texts[index] for index in batch)
        inputs = [np.array([*batch, self.max_new_tokens]), *texts]
        part = self.cell.part(inputs, lambda: ragged("answers", decode()))
        return rows_of(part, "answers")

    @torch.no_grad()
    def _prefill(self, prompts: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
        """Process prompts (batch, tokens); return the last states (batch, hidden_size)."""
        chunk = min(self.chunk, max(1, self.batch_tokens // len(prompts)))
        for piece in prompts.to(self.model.model.device).split(chunk, dim=1):
            states = self.model.hidden_states(piece, cache)[:, -1]
        return states

    def _continued(
        self, batch: Sequence[int], states: torch.Tensor, follow: Follow
    ) -> list[TokenIds]:
        stop_rules = [self.stop_rules[index] for index in batch]
        return greedy(self.model, stop_rules, self.max_new_tokens, states, follow)


def next_states(
    model: ExtendedModel, cache: DynamicCache, kept: list[int] | None, tokens: torch.Tensor
) -> torch.Tensor:
    """Process one more token of each text in a cache, as `Follow` says."""
    if kept is not None:
        cache.batch_select_indices(torch.tensor(kept, device=tokens.device))
    return model.hidden_states(tokens[:, None], cache)[:, -1]


@torch.no_grad()
def greedy(
    model: ExtendedModel,
    stop_rules: Sequence[Stop],
    max_new_tokens: int,
    states: torch.Tensor,
    follow: Follow,
) -> list[TokenIds]:
    """Answer each text, given the hidden states (texts, hidden_size) of the texts' last tokens."""
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
    return Head.of(model.model).capped(logits)
