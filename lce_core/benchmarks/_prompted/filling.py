"""Find the largest prompt that fits, and check before a model runs that prompts fill the length."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from lce_core.data.sequences import Sequences
from lce_core.errors import UnavailableError

FULL_SHARE = Fraction(95, 100)
"""Prompt and answer must take at least this share of the length, on average over prompts."""


def last_that_fits(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number that fits, by bisection; `low` must fit and `high` must not."""
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
    """Raise an error if the prompts of a cell are too short for its length.

    Args:
      prompts: lengths of the prompts in tokens.
      answer_tokens: maximum number of tokens generated after each prompt.
      eval_length: length that the prompts should fill.
      slack: returns by how many tokens prompts may stay below the length; called only if they do
        not reach `FULL_SHARE`.
      otherwise: another way to fill the length, for the error message; may be empty.

    Raises:
      UnavailableError: if prompt and answer reach, on average, neither `FULL_SHARE` of the length
        nor the length minus the slack; the message states the lengths.
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
        f"prompts of {found['min']:,} to {found['max']:,} tokens, mean {found['mean']:,.0f}, for"
        f" {eval_length:,} tokens with the {answer_tokens:,} of an answer",
        f"prompts that take at least {needed:,} tokens",
        f"evaluate at most {shorter:,} tokens{or_else}",
    )
