"""The loop of greedy decoding: append the most likely token to each text until all have ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from lce_core.errors import NonFiniteError
from lce_core.evaluation.shared_prefixes import TokenIds

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel

Stop = Callable[[TokenIds], bool]
"""Rule called with an answer's token ids; True if further tokens cannot change the score."""
Follow = Callable[[list[int] | None, torch.Tensor], torch.Tensor]


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
        tokens = _most_likely(model, states, len(answers[running[0]]) + 1)
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


def _most_likely(model: ExtendedModel, states: torch.Tensor, number: int) -> torch.Tensor:
    """Return the most likely next token of each text (texts,); `number` counts from 1."""
    logits = finite_logits(model, states, f"token {number} of {len(states)} answers")
    # Never generate the method's inserted token; it is not text.
    if model.inserter:
        logits[:, model.inserter.token] = -torch.inf
    chosen: torch.Tensor = logits.argmax(dim=-1)
    return chosen


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
