"""Whether prompts are as long as their cell says, decided before a model is asked."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

from lce_core.data.sequences import Sequences
from lce_core.errors import UnavailableError

FULL_SHARE = Fraction(95, 100)
"""Share of the length that prompts and their answers take at least, mean over the prompts."""


def require_filled(
    prompts: Sequences,
    answer_tokens: int,
    eval_length: int,
    slack: Callable[[], int],
    otherwise: str,
) -> None:
    """Refuses prompts that do not fill their length.

    Args:
      prompts: their lengths in tokens.
      answer_tokens: what is generated at most after each.
      eval_length: the length that they stand for.
      slack: tokens by which the definition of the prompts lets them stay below the length; asked
        only where `FULL_SHARE` of it is not reached.
      otherwise: another way to fill the length, for the remedy; may be empty.

    Raises:
      UnavailableError: they reach neither the share nor the length less the slack; says the
        tokens that they take.
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
