"""Lengths of prompts: find the largest that fits, and refuse cells whose prompts are too short."""

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
    """Return the error that `what` takes more tokens than the cell's length.

    Args:
      what: the prompt and its answer as a plural noun, for the message.
      needed: tokens of prompt and answer.
      otherwise: further advice that ends the message, such as " or fewer shots".
    """
    return UnavailableError(
        "eval_length",
        f"{request.eval_length} tokens, where {what} take {needed}",
        f"at least {needed} tokens",
        f"evaluate longer contexts{otherwise}",
    )


def last_that_fits(fits: Callable[[int], bool], low: int, high: int) -> int:
    """Bisect for the largest number that fits; `low` must fit and `high` must not."""
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
      slack: returns how many tokens shorter than the cell's length prompts may be; called only for
        prompts below `FULL_SHARE`, because it may read data.
      otherwise: further advice for the error message; may be empty.

    Raises:
      UnavailableError: if the mean of prompt plus answer is below `FULL_SHARE` of the length and
        below the length minus the slack.
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
        f"prompts that take at least {needed:,} tokens",
        f"evaluate at most {shorter:,} tokens{or_else}",
    )
