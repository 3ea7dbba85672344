"""Decide which texts go through the model in one forward pass, so that scores are reproducible.

Kernels change their order of summation with the number of rows, so a score may depend on the other
texts of a batch. In float32 the effect on a logit is about 1e-6, too small to matter. There, passes
are as large as memory allows and prompts share prefixes.

In bf16 the effect reaches the third digit, and one answer in ten of a random model changes. There,
each text passes alone, in pieces of one size at fixed positions, whatever the memory budget.
Prompts share only whole pieces, which repeat exactly the same passes. On one machine, budget and
sharing therefore do not change a single bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel

CHUNK = 4096
"""Maximum tokens of a prompt per forward pass in float32."""
PIECE = 1024
"""Tokens of a prompt per forward pass in half precision. Passes start at multiples of this number,
so that equal prompts are rounded equally."""


def texts_together(model: ExtendedModel, length: int, batch_tokens: int) -> int:
    """Return how many texts of `length` tokens share a forward pass: one in half precision."""
    return 1 if model.coarse else max(1, batch_tokens // length)


def batches(lengths: Sequence[int], batch_tokens: int, *, mixed: bool) -> Iterator[list[int]]:
    """Yield batches of text indices within a token budget, shortest texts first.

    Args:
      lengths: tokens of each text.
      batch_tokens: maximum tokens of a batch; a single text may exceed it.
      mixed: True if a batch may hold texts of several lengths.
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
    """Return `num_tokens` rounded down to a multiple of `PIECE`."""
    return num_tokens // PIECE * PIECE


def shape_of_passes(model: ExtendedModel, batch_tokens: int) -> dict[str, int]:
    """Return the sizes of a forward pass, which are recorded with a cell's result.

    In float32 "batch_tokens" is the limit of a batch; in half precision "texts" is 1.
    """
    if model.coarse:
        return {"texts": 1, "piece_tokens": PIECE}
    return {"batch_tokens": batch_tokens, "piece_tokens": CHUNK}


@dataclass
class Passed:
    """Counter of the tokens that passed through a model."""

    tokens: int = 0
    """Tokens of prompts, windows and answers, including tokens that a method inserts but not tokens
    read from a cache."""


@contextmanager
def counted(model: ExtendedModel) -> Iterator[Passed]:
    """Count the tokens that pass through the model inside the `with` block."""
    passed = Passed()

    def count(_: object, inputs: tuple[Any, ...]) -> None:
        passed.tokens += inputs[0].numel()

    hook = model.model.get_input_embeddings().register_forward_pre_hook(count)
    try:
        yield passed
    finally:
        hook.remove()
