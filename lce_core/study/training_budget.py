"""Divide a training budget, in tokens or in FLOPs, into the optimizer steps of a variant's runs.

A method with stages trains in several runs; its shares are fractions of all training tokens.
"""

from __future__ import annotations

from collections.abc import Sequence

from lce_core.errors import SpecError
from lce_core.models import LanguageModel
from lce_core.study.step_cost import pretraining_cost


def reference_flops(base_model: LanguageModel, tokens: int, length: int) -> float:
    """Return the FLOPs that `match: flops` gives every tuned variant.

    They train all weights of the unmodified base model, with full attention, in rows of `length`.
    """
    return pretraining_cost(base_model, tokens, length).flops


def steps_for_tokens(tokens: int, shares: Sequence[float], tokens_per_step: int) -> list[int]:
    """Return each run's optimizer steps, rounded down; the last run gets the tokens left."""
    parts = [int(share * tokens) for share in shares]
    parts.append(tokens - sum(parts))
    for part in parts:
        if part < tokens_per_step:
            raise SpecError(
                "train_tokens",
                f"{part} tokens for one training run",
                f"at least one step of training, {tokens_per_step} tokens",
                "increase train_tokens or reduce training.tokens_per_step",
            )
    return [part // tokens_per_step for part in parts]


def steps_for_flops(
    flops: float, shares: Sequence[float], flops_per_step: Sequence[float]
) -> list[int]:
    """Return each run's optimizer steps, rounded to the nearest, at least one.

    The last run gets the FLOPs that rounding left of the budget, so all runs together differ from
    it by at most half a step of the last run, unless a run needs its first step.
    """
    *earlier, last = flops_per_step
    mean = sum(share * cost for share, cost in zip(shares, earlier, strict=True))
    num_steps = flops / (mean + (1 - sum(shares)) * last)
    counts = [max(1, round(share * num_steps)) for share in shares]
    left = flops - sum(count * cost for count, cost in zip(counts, earlier, strict=True))
    return [*counts, max(1, round(left / last))]
