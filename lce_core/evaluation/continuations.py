"""Log-likelihood of continuations of given contexts, with one code path for all methods.

Multiple-choice benchmarks score several short continuations of one context. Texts that differ only
in their last token (one-token answers to one question) have the same input and are processed once.
All texts of a forward pass have the same length, so there is no padding and no attention mask.
Logits are computed only for the continuation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from lce_core.errors import SpecError
from lce_core.evaluation.greedy import finite_logits
from lce_core.evaluation.passes import texts_together
from lce_core.evaluation.shared_prefixes import TokenIds
from lce_core.progress import Progress, no_progress

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel


@torch.no_grad()
def continuation_log_likelihoods(
    model: ExtendedModel,
    texts: Sequence[tuple[TokenIds, TokenIds]],
    *,
    batch_tokens: int,
    report: Progress = no_progress,
) -> list[tuple[float, bool]]:
    """Return the log-probability of each continuation given its context.

    Args:
      model: the extended model; its frequencies are those for the full length of each text.
      texts: pairs (context, continuation) of token ids, at least one token each.
      batch_tokens: maximum tokens per forward pass, which always has at least one text; in half
        precision it has exactly one.
      report: called with (texts done, total texts) after each pass.

    Returns:
      For each text the sum of the log-probabilities of the continuation's tokens in nats, and True
        if greedy decoding would have produced the continuation.

    Raises:
      SpecError: if a context or continuation is empty.
      NonFiniteError: if logits are NaN or infinite.
    """
    scores: dict[int, tuple[float, bool]] = {}
    for length, inputs in sorted(inputs_by_length(texts).items(), reverse=True):
        model.begin_request(length + 1)
        rows = texts_together(model, length, batch_tokens)
        members = list(inputs.values())
        for start in range(0, len(members), rows):
            batch = members[start : start + rows]
            ids = np.stack([np.concatenate(texts[same[0]])[:-1] for same in batch])
            hidden = model.hidden_states(torch.from_numpy(ids).to(model.model.device))
            for states, same in zip(hidden, batch, strict=True):
                scores |= {
                    index: score_continuation(model, states, texts[index][1]) for index in same
                }
            report(len(scores), len(texts))
    return [scores[index] for index in range(len(texts))]


def inputs_by_length(
    texts: Sequence[tuple[TokenIds, TokenIds]],
) -> dict[int, dict[bytes, list[int]]]:
    """Group the indices of the texts by the number of input tokens, then by the input itself.

    The input is all token ids but the last, so texts that differ only in their last token share it.

    Raises:
      SpecError: if a context or continuation is empty.
    """
    found: dict[int, dict[bytes, list[int]]] = {}
    for index, (context, continuation) in enumerate(texts):
        if not len(context) or not len(continuation):
            raise SpecError(
                "continuation_log_likelihoods",
                f"text {index}: {len(context)} context and {len(continuation)} continuation tokens",
                "at least 1 token of each",
                "remove texts with an empty context or continuation",
            )
        ids = np.concatenate([context, continuation[:-1]])
        found.setdefault(len(ids), {}).setdefault(ids.tobytes(), []).append(index)
    return found


def score_continuation(
    model: ExtendedModel, states: torch.Tensor, continuation: TokenIds
) -> tuple[float, bool]:
    """Return a continuation's log-probability in nats, and whether greedy decoding produces it.

    Args:
      model: the extended model.
      states: hidden states (tokens, hidden_size) of the text without its last token. Only the last
        `len(continuation)` states are used.
      continuation: token ids at the end of the text, at least one.

    Raises:
      NonFiniteError: if logits are NaN or infinite.
    """
    where = f"text of {len(states) + 1} tokens"
    logits = finite_logits(model, states[-len(continuation) :], where)
    targets = torch.from_numpy(continuation).to(logits.device)
    chosen = logits.log_softmax(dim=-1).gather(-1, targets[:, None])
    # Greedy decoding never produces the method's inserted token.
    if model.inserter:
        logits[:, model.inserter.token] = -torch.inf
    return float(chosen.sum()), bool((logits.argmax(dim=-1) == targets).all())
