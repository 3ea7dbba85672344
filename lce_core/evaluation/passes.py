"""What passes through a model together, and how that is recorded.

Kernels add in another order for another number of rows, so a score may depend on what a text was
batched with. In float32 that is a difference of some 1e-6 in a logit, which tips no choice that
means anything: passes are as large as memory allows, and prompts share what they have in common.
In bf16 it is a difference in the third digit, and one answer in ten of a random model moves. There
each text passes by itself, in pieces of one size that begin at fixed places, whatever the memory
budget; what prompts share is reused in whole pieces, which are then the very same passes. So budget
and savings change no bit on one machine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lce_core.extension.extended_model import ExtendedModel

CHUNK = 4096
"""Longest piece of a prompt in tokens, where passes are as large as memory allows."""
PIECE = 1024
"""Piece of a prompt in tokens, where its places are fixed."""


def texts_together(model: ExtendedModel, length: int, batch_tokens: int) -> int:
    """Texts of `length` tokens that pass together under a budget of tokens; at least one."""
    return 1 if model.coarse else max(1, batch_tokens // length)


def batches(lengths: Sequence[int], batch_tokens: int, *, mixed: bool) -> Iterator[list[int]]:
    """Which texts of these lengths go together under a budget of tokens, the shortest first.

    Args:
      lengths: tokens of each text.
      batch_tokens: of a batch at most, or one text.
      mixed: a batch may hold texts of several lengths.
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
    """Tokens of the pieces that lie within the first `num_tokens` of a text."""
    return num_tokens // PIECE * PIECE


def shape_of_passes(model: ExtendedModel, batch_tokens: int) -> dict[str, int]:
    """For the record: tokens of a batch at most, or its texts; tokens of a piece of a prompt."""
    if model.coarse:
        return {"texts": 1, "piece_tokens": PIECE}
    return {"batch_tokens": batch_tokens, "piece_tokens": CHUNK}


@dataclass
class Passed:
    """What has passed through a model."""

    tokens: int = 0
    """Of prompts, windows and answers, inserted ones included; those read from caches are not."""


@contextmanager
def counted(model: ExtendedModel) -> Iterator[Passed]:
    """Counts what passes while it is open."""
    passed = Passed()

    def count(_: object, inputs: tuple[Any, ...]) -> None:
        passed.tokens += inputs[0].numel()

    hook = model.model.get_input_embeddings().register_forward_pre_hook(count)
    try:
        yield passed
    finally:
        hook.remove()
