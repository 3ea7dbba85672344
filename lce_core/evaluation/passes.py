"""Decide which texts go through the model in one forward pass, so that scores are reproducible.

Kernels change their order of summation with the number of rows, so a score may depend on the other
texts of a batch. In float32 the effect on a logit is about 1e-6, so passes are as large as the
token budget allows, and prompts share prefixes.

In bf16 the effect reaches the third digit and changes one answer in ten of a randomly initialised
model. In half precision, each text is therefore processed alone, and prompts in pieces of one size
at fixed positions. Prompts share only whole pieces. On one machine, results are therefore bitwise
equal for every token budget, with and without sharing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lce_core.evaluation.shared_prefixes import TokenIds
    from lce_core.extension.extended_model import ExtendedModel

CHUNK = 4096
"""Maximum tokens of a prompt per forward pass in float32."""
PIECE = 1024
"""Maximum tokens of a prompt per forward pass in half precision; passes start at its multiples."""


def texts_together(model: ExtendedModel, length: int, batch_tokens: int) -> int:
    return 1 if model.coarse else max(1, batch_tokens // length)


def same_frequencies(
    model: ExtendedModel, texts: Sequence[TokenIds], new_tokens: int
) -> list[list[int]]:
    keys = {length: model.request_key(length + new_tokens) for length in {*map(len, texts)}}
    groups: dict[object, list[int]] = {}
    for index, text in enumerate(texts):
        groups.setdefault(keys[len(text)], []).append(index)
    return list(groups.values())


def batches(lengths: Sequence[int], batch_tokens: int, *, mixed: bool) -> Iterator[list[int]]:
    """Yield batches of text indices within a token budget, shortest texts first.

    A single text may exceed `batch_tokens`. `mixed` allows texts of different lengths in a batch.
    """
    batch: list[int] = []
    tokens = 0
    for text in sorted(range(len(lengths)), key=lengths.__getitem__):
        alike = not batch or mixed or lengths[batch[0]] == lengths[text]
        if batch and not (alike and tokens + lengths[text] <= batch_tokens):
            yield batch
            batch, tokens = [], 0
        batch.append(text)
        tokens += lengths[text]
    if batch:
        yield batch


def whole_pieces(num_tokens: int) -> int:
    return num_tokens // PIECE * PIECE


def shape_of_passes(model: ExtendedModel, batch_tokens: int) -> dict[str, int]:
    """Return the limits of a forward pass, to be recorded with the evaluation's result."""
    if model.coarse:
        return {"texts": 1, "piece_tokens": PIECE}
    return {"batch_tokens": batch_tokens, "piece_tokens": CHUNK}


@dataclass
class Passed:
    """Counter of the tokens that passed through a model."""

    tokens: int = 0
    """Tokens of prompts, windows and answers, with inserted tokens and without reused ones."""


@contextmanager
def counted(model: ExtendedModel) -> Iterator[Passed]:
    """Count the tokens that pass through the model inside the `with` block."""
    passed, replayed_before = Passed(), model.replayed_tokens

    def count(_: object, inputs: tuple[Any, ...]) -> None:
        passed.tokens += inputs[0].numel()

    hook = model.model.get_input_embeddings().register_forward_pre_hook(count)
    try:
        yield passed
    finally:
        hook.remove()
        passed.tokens += model.replayed_tokens - replayed_before
