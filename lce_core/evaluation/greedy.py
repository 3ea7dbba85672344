"""The loop of greedy decoding: the most likely token of each text, until each has ended."""

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
"""Given the ids generated so far, whether more of them could not change the score."""
Follow = Callable[[list[int] | None, torch.Tensor], torch.Tensor]


def greedy(
    model: ExtendedModel,
    ended: Sequence[Stop],
    max_new_tokens: int,
    states: torch.Tensor,
    follow: Follow,
) -> list[TokenIds]:
    """Answers to texts, given the states (texts, hidden_size) after them.

    Args:
      model: the extended model.
      ended: for each text, whether its answer is complete.
      max_new_tokens: longest answer.
      states: after the last token of each text.
      follow: processes one token more of each text that goes on, given their places among those of
        the call before (None: all do) and the tokens; it returns the states after them.

    Raises:
      NonFiniteError: logits are NaN or infinite.
    """
    answers: list[list[int]] = [[] for _ in ended]
    # Texts that go on, by number; states and the cache have one line for each of them.
    running = list(range(len(ended)))
    while True:
        tokens = _most_likely(model, states, len(answers[running[0]]) + 1)
        for text, token in zip(running, tokens.tolist(), strict=True):
            answers[text].append(token)
        kept = [
            place
            for place, text in enumerate(running)
            if len(answers[text]) < max_new_tokens and not ended[text](np.array(answers[text]))
        ]
        if not kept:
            return [np.array(answer, dtype=np.int64) for answer in answers]
        fewer = kept if len(kept) < len(running) else None
        running = [running[place] for place in kept]
        states = follow(fewer, tokens[kept])


def stop_rule(model: ExtendedModel, stop: Stop | None) -> Stop:
    """Ends at the model's own end-of-sequence token, or where `stop` says so."""
    end = getattr(model.model.generation_config, "eos_token_id", None)
    ends = set(end) if isinstance(end, list) else {end}
    return lambda ids: int(ids[-1]) in ends or (stop is not None and stop(ids))


def _most_likely(model: ExtendedModel, states: torch.Tensor, number: int) -> torch.Tensor:
    """Token `number` (batch,) of answers, after states (batch, hidden_size)."""
    logits = model.model.get_output_embeddings()(states).float()
    # Both are NaN where any logit is.
    extremes = torch.cat([logits.amin(dim=-1), logits.amax(dim=-1)])
    if not bool(torch.isfinite(extremes).all()):
        raise NonFiniteError(
            f"token {number} of {len(states)} answers",
            "NaN or infinite logits",
            "finite logits",
            "check the checkpoint and its precision",
        )
    if model.inserter:  # A token of the method's own is no text.
        logits[:, model.inserter.token] = -torch.inf
    chosen: torch.Tensor = logits.argmax(dim=-1)
    return chosen
