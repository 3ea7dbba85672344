"""Fit prompts to the cell's length."""

from __future__ import annotations

from collections.abc import Callable

from lce_core.benchmarks._base import CellRequest
from lce_core.benchmarks._prompted.retrieval import encode
from lce_core.errors import UnavailableError

_ROUNDS = 8
"""Maximum number of cuts: joined halves, tokenised again, may have too many tokens."""


def too_long(
    request: CellRequest, what: str, needed: int, *, otherwise: str = ""
) -> UnavailableError:
    """Build the error for a prompt that takes, with its answer, more tokens than the cell's length.

    `what` is a plural noun, such as "two lines and the answer"; `otherwise` ends the message.
    """
    return UnavailableError(
        "eval_length",
        f"{request.eval_length} tokens, but {what} take {needed}",
        f"at least {needed} tokens",
        f"use a longer length{otherwise}",
    )


def last_that_fits(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number that fits, found by bisection; `low` must fit, `high` must not."""
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def cut_middle(request: CellRequest, text: str, max_tokens: int) -> list[int]:
    """Return the token ids of a text, without its middle if it has more than `max_tokens` tokens.

    The first and the last max_tokens // 2 tokens are decoded without special tokens, joined and
    tokenised again, so a few more may result. Source: LongBench/pred.py of
    github.com/THUDM/LongBench@2e00731, and LCEG's copy of it.
    """
    ids = encode(request, text)
    return ids if len(ids) <= max_tokens else encode(request, _ends(request, ids, max_tokens))


def cut_middle_to_fit(request: CellRequest, text: str, max_tokens: int) -> list[int]:
    """Shorten a text as `cut_middle` does, but return at most `max_tokens` token ids.

    If halves are still too long after `_ROUNDS` cuts, token ids are removed from the middle.
    """
    ids = encode(request, text)
    kept, cut = max_tokens, ids
    for _ in range(_ROUNDS):
        excess = len(cut) - max_tokens
        if excess <= 0 or kept <= 0:
            break
        cut = encode(request, _ends(request, ids, kept))
        kept -= max(1, len(cut) - max_tokens)
    half = max_tokens // 2
    return cut if len(cut) <= max_tokens else cut[:half] + cut[len(cut) - half :]


def _ends(request: CellRequest, ids: list[int], max_tokens: int) -> str:
    half = max_tokens // 2
    parts = ids[:half], ids[len(ids) - half :]
    return "".join(str(request.tokenizer.decode(part, skip_special_tokens=True)) for part in parts)
