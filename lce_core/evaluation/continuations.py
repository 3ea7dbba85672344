"""Log-likelihood of continuations of given contexts, with one code path for all methods.

Texts that differ only in their last token (one-token answers to one question) have the same input
and are processed once. Logits are computed only for the continuation.

In fp32, texts with a common prefix share its keys and values if that saves more work than batching,
as prompts do in `lce_core.evaluation.decoding`. In half precision, each text is processed alone.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from transformers import DynamicCache

from lce_core.errors import SpecError
from lce_core.evaluation import passes
from lce_core.evaluation.decoding import finite_logits
from lce_core.evaluation.packed_texts import PackedTexts, tail_of_chunks
from lce_core.evaluation.passes import CHUNK, TokenIds
from lce_core.extension.extended_model import ExtendedModel
from lce_core.progress import Progress, no_progress


@torch.no_grad()
def continuation_log_likelihoods(
    model: ExtendedModel,
    texts: Sequence[tuple[TokenIds, TokenIds]],
    *,
    batch_tokens: int,
    share_prefixes: bool = True,
    report: Progress = no_progress,
) -> list[tuple[float, bool]]:
    """Score the continuation in each pair (context, continuation) of at least one token each.

    Returns for each text the sum of log-probabilities in nats, and True if greedy decoding would
    have produced the continuation. `batch_tokens` limits the tokens of a forward pass, which always
    has at least one text, and those that further texts add to a shared cache; half precision
    ignores it.
    """
    inputs = distinct_inputs(texts)
    ids = [one for one, _ in inputs]
    tails = [max(len(texts[index][1]) for index in same) for _, same in inputs]
    scores: dict[int, tuple[float, bool]] = {}
    for group in passes.same_frequencies(model, ids, 1):
        members, ends = [ids[place] for place in group], [tails[place] for place in group]
        model.begin_request(max(map(len, members)) + 1)
        share = share_prefixes and not model.coarse and passes.pays(members)
        states_of = _sharing if share else _in_batches
        for place, states in states_of(model, members, ends, batch_tokens):
            for index in inputs[group[place]][1]:
                scores[index] = score_continuation(model, states, texts[index][1])
            report(len(scores), len(texts))
    return [scores[index] for index in range(len(texts))]


def _in_batches(
    model: ExtendedModel, inputs: Sequence[TokenIds], tails: Sequence[int], batch_tokens: int
) -> Iterator[tuple[int, torch.Tensor]]:
    budget = 1 if model.coarse else batch_tokens
    # Longest first, so that a pass that does not fit into memory fails at once.
    for batch in reversed([*passes.batches([*map(len, inputs)], budget, mixed=False)]):
        ids = np.stack([inputs[index] for index in batch])
        hidden = model.hidden_states(torch.from_numpy(ids).to(model.model.device))
        for index, states in zip(batch, hidden, strict=True):
            yield index, states[-tails[index] :]


def _sharing(
    model: ExtendedModel, inputs: Sequence[TokenIds], tails: Sequence[int], batch_tokens: int
) -> Iterator[tuple[int, torch.Tensor]]:
    limit, chunk = batch_tokens if model.packs else 0, min(CHUNK, batch_tokens)
    room = max(map(len, inputs))
    cache: DynamicCache = model.new_cache(room)
    held = np.empty(0, dtype=np.int64)
    for bundle in passes.bundles(inputs, passes.sharing_order(inputs), limit, max(tails)):
        first = bundle[0]
        kept = passes.reusable(held, inputs[first], tails[first])
        model.cut_back(cache, kept)
        held = inputs[bundle[-1]]
        if len(bundle) == 1:
            rest = torch.tensor(held[kept:], device=model.model.device)
            yield first, tail_of_chunks(model, rest, cache, chunk, tails[first])
        else:
            ends = [tails[index] for index in bundle]
            packed = PackedTexts(
                model, [inputs[index] for index in bundle], cache, kept, chunk, ends
            )
            yield from zip(bundle, packed.tail_states(), strict=True)
            cache = packed.cache_of(-1, len(held))


def distinct_inputs(
    texts: Sequence[tuple[TokenIds, TokenIds]],
) -> list[tuple[TokenIds, list[int]]]:
    """Return the distinct inputs (all ids but the last), each with the indices of its texts."""
    found: dict[bytes, list[int]] = {}
    for index, (context, continuation) in enumerate(texts):
        if not len(context) or not len(continuation):
            raise SpecError(
                "continuation_log_likelihoods",
                f"text {index}: {len(context)} context and {len(continuation)} continuation tokens",
                "at least 1 token of each",
                "remove texts with an empty context or continuation",
            )
        ids = np.concatenate([context, continuation[:-1]], dtype=np.int64)
        found.setdefault(ids.tobytes(), []).append(index)
    return [(np.frombuffer(key, dtype=np.int64), same) for key, same in found.items()]


def score_continuation(
    model: ExtendedModel, states: torch.Tensor, continuation: TokenIds
) -> tuple[float, bool]:
    """Return a continuation's log-probability in nats, and whether greedy decoding produces it.

    `states` (tokens, hidden_size) belong to the text without its last token.
    """
    where = f"text of {len(states) + 1} tokens"
    logits = finite_logits(model, states[-len(continuation) :], where)
    targets = torch.from_numpy(continuation).to(logits.device)
    chosen = logits.log_softmax(dim=-1).gather(-1, targets[:, None])
    # Greedy decoding never produces the method's inserted token.
    if model.inserter:
        logits[:, model.inserter.token] = -torch.inf
    return float(chosen.sum()), bool((logits.argmax(dim=-1) == targets).all())
