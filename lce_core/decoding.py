"""Greedy decoding, for all methods through one code path.

Prompts of one call have one length, so there is no padding: custom attention sees plain positions.
The prompt passes through the decoder in chunks that fill a key-value cache; the vocabulary
projection is applied to the last position only. The method's frequencies are fixed once, for prompt
plus new tokens, so that cached keys stay valid. A sequence that is finished leaves its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from lce_core.errors import NonFiniteError, SpecError

if TYPE_CHECKING:
    from lce_core.extension import ExtendedModel

TokenIds = NDArray[np.int64]
Stop = Callable[[TokenIds], bool]
"""Given the ids generated so far, whether more of them could not change the score."""


def generate(
    model: ExtendedModel,
    prompts: NDArray[np.integer],
    *,
    max_new_tokens: int,
    stop: Stop | Sequence[Stop] | None = None,
    batch_tokens: int,
    chunk: int = 4096,
    report: Callable[[int, int], None] = lambda *_: None,
) -> list[TokenIds]:
    """The most likely continuation of each prompt, token by token.

    Args:
      model: the extended model.
      prompts: token ids (n, P), P >= 1.
      max_new_tokens: longest continuation.
      stop: ends a sequence early, one rule for all or one for each prompt; so does the model's own
        end-of-sequence token.
      batch_tokens: upper limit of tokens in one forward pass, and of prompt tokens in one batch;
        one prompt at least.
      chunk: longest piece of the prompts that is processed at once.
      report: called with (prompts done, prompts in all) after each batch.

    Returns:
      For each prompt the generated ids, the one that ended it included.

    Raises:
      SpecError: empty prompts or nothing to generate.
      NonFiniteError: logits are NaN or infinite.
    """
    num_prompts, length = prompts.shape
    if length < 1 or max_new_tokens < 1:
        raise SpecError(
            "generate",
            f"prompts of {length} tokens, {max_new_tokens} new tokens",
            "both are at least 1",
            "Correct the request.",
        )
    model.begin_request(length + max_new_tokens)
    rules = stop if isinstance(stop, Sequence) else [stop] * num_prompts
    ended = [_stop_rule(model, rule) for rule in rules]
    rows = max(1, batch_tokens // length)
    answers: list[TokenIds] = []
    for start in range(0, num_prompts, rows):
        batch = torch.from_numpy(prompts[start : start + rows].astype(np.int64))
        piece = min(chunk, max(1, batch_tokens // len(batch)))
        with torch.no_grad():
            answers += _continue(
                model,
                batch.to(model.model.device),
                max_new_tokens,
                ended[start : start + rows],
                piece,
            )
        report(len(answers), num_prompts)
    return answers


def _continue(
    model: ExtendedModel,
    prompts: torch.Tensor,
    max_new_tokens: int,
    ended: Sequence[Stop],
    chunk: int,
) -> list[TokenIds]:
    cache = DynamicCache()
    *head, last = prompts.split(chunk, dim=1)
    for piece in head:
        model.hidden_states(piece, cache)
    tokens = _next_tokens(model, last, cache)
    answers: list[list[int]] = [[] for _ in prompts]
    running = list(range(len(prompts)))
    while True:
        for row, token in zip(running, tokens.tolist(), strict=True):
            answers[row].append(token)
        kept = [
            index
            for index, row in enumerate(running)
            if len(answers[row]) < max_new_tokens and not ended[row](np.array(answers[row]))
        ]
        if not kept:
            return [np.array(answer, dtype=np.int64) for answer in answers]
        if len(kept) < len(running):
            selected = torch.tensor(kept, device=prompts.device)
            cache.batch_select_indices(selected)
            tokens = tokens[selected]
            running = [running[index] for index in kept]
        tokens = _next_tokens(model, tokens[:, None], cache)


def _next_tokens(model: ExtendedModel, ids: torch.Tensor, cache: DynamicCache) -> torch.Tensor:
    hidden = model.hidden_states(ids, cache)
    logits = model.model.get_output_embeddings()(hidden[:, -1]).float()
    if not bool(torch.isfinite(logits).all()):
        raise NonFiniteError(
            f"after {cache.get_seq_length()} tokens: NaN or infinite logits: logits are finite."
            " Check the checkpoint and its precision."
        )
    chosen: torch.Tensor = logits.argmax(dim=-1)
    return chosen


def _stop_rule(model: ExtendedModel, stop: Stop | None) -> Stop:
    end = getattr(model.model.generation_config, "eos_token_id", None)
    ends = set(end) if isinstance(end, list) else {end}
    return lambda ids: int(ids[-1]) in ends or (stop is not None and stop(ids))
