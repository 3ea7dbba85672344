"""Fit prompts to the cell's length, and refuse cells whose prompts are too long or too short."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from lce_core.benchmarks._base import CellRequest
from lce_core.data.sequences import Sequences
from lce_core.errors import UnavailableError

FULL_SHARE = Fraction(95, 100)
"""Fraction of the cell's length that prompt and answer must reach, on average over prompts."""


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


def require_filled(
    prompts: Sequences,
    answer_tokens: int,
    eval_length: int,
    slack: Callable[[], int],
    otherwise: str,
) -> None:
    """Raise UnavailableError if the prompts of a cell are too short for its length.

    This is the case if prompt plus answer are, on average, below `FULL_SHARE` of the length and
    below the length minus the slack (`PromptBenchmark.slack_tokens`), which may read data.
    `otherwise` is an alternative to a shorter length, for the message.
    """
    found = prompts.lengths
    filled = Fraction(prompts.num_tokens, sum(prompts.counts.values())) + answer_tokens
    least = FULL_SHARE * eval_length
    if filled < least:
        least = min(least, Fraction(eval_length - slack()))
    if filled >= least:
        return
    needed = math.ceil(least) - answer_tokens
    shorter, or_else = found["max"] + answer_tokens, f", or {otherwise}" if otherwise else ""
    raise UnavailableError(
        "eval_length",
        f"prompts of {found['min']:,} to {found['max']:,} tokens, mean {found['mean']:,.0f}, for a"
        f" length of {eval_length:,} tokens including {answer_tokens:,} for the answer",
        f"prompts of at least {needed:,} tokens on average",
        f"use a length of at most {shorter:,} tokens{or_else}",
    )
