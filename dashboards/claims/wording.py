"""Format methods, lengths and numbers for sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lce_core import formats

NAMED = 4
"""Methods that a sentence lists by name; further methods are counted."""

EXPLAINED = (
    "Differences are paired, on the same prompts, with 95 % intervals. Better means significantly"
    " better (p_Holm below 0.05). A result of these training runs only may change its sign with"
    " other training seeds. The smallest detectable difference is the one that the test finds in"
    " four of five studies; smaller ones may exist."
)
OUTCOMES = (
    "The study file names these comparisons (expects). Confirmed and contradicted: the methods"
    " differ significantly, in the expected or in the other direction. Undecided: no significant"
    " difference, too few samples, or a difference whose sign changes with the seed. Not measured:"
    " no results of both methods on the same prompts."
)
"""Explanation of the outcomes of expectations, for readers of a report."""


def detectable(difference: float | None) -> str:
    """Return the clause with the smallest detectable difference; "" if it is None."""
    if difference is None:
        return ""
    return f"; smallest detectable difference: {formats.rounded(difference)}"


def at(eval_length: int, trained: int | None) -> str:
    """Return "at 4,096 tokens", or "at 4x (4,096 tokens)" beyond the trained context."""
    tokens = f"{eval_length:,} tokens"
    if not trained or eval_length <= trained:
        return f"at {tokens}"
    return f"at {eval_length / trained:.3g}x ({tokens})"


def seeds(row: Mapping[str, Any]) -> str:
    """Return "3 seeds", with a note if the result may not hold for other training runs."""
    count, tuned = row["num_seeds"], not (row["frozen"] and row["other_frozen"])
    if count == 1:
        return "1 seed (this training run only)" if tuned else "1 seed"
    low, high = row["seeds_low"], row["seeds_high"]
    holds = low is not None and low * high > 0
    surely = row["verdict"] == "better" and tuned and not holds
    return f"{count} seeds{' (these training runs only)' * surely}"


def too_few(number: int, of: str = "") -> str:
    """State that this number of independent samples is too small; `of` names what they sample."""
    return (
        f"{number} independent sample{of} is too few"
        if number == 1
        else (f"{number} independent samples{of} are too few")
    )


def measured(row: Mapping[str, Any], several: bool) -> str:
    """Return the benchmark's name, followed by the row's tasks in brackets if `several`."""
    name = str(row["benchmark"]).replace("_", " ")
    return f"{name} ({row['tasks']})" if several else name


def listed(names: Sequence[str]) -> str:
    """Join names to "a, b and c"; beyond five, to the first four and "N more"."""
    if len(names) > NAMED + 1:
        names = [*names[:NAMED], f"{len(names) - NAMED} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
