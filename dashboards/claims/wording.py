"""How methods, lengths and numbers are said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

NAMED = 4
"""Methods that a sentence names; the others are counted."""

COULD_SEE = (
    "The method none is the base model as it is. Differences are those on the same prompts, with"
    " 95 % intervals; where seeds of training differ so much that another one might turn the sign,"
    " it is of these training runs only. What a study could see is the smallest difference that its"
    " test finds four times in five; smaller ones may be there."
)
HOLDS = (
    "A method holds a score up to the length to which it keeps 90 % of the accuracy, or exceeds by"
    " at most 10 % the perplexity, that the base model has within its context."
)
"""What words of the sentences mean, for readers of a page."""


def label(method: str, frozen: bool) -> str:
    """As in every table of a study."""
    return method if frozen else f"{method} tuned"


def at(eval_length: int, trained: int | None) -> str:
    """Where: how many times the trained context, beyond it."""
    tokens = f"{eval_length:,} tokens"
    if not trained or eval_length <= trained:
        return f"at {tokens}"
    return f"at {eval_length / trained:.3g}x ({tokens})"


def number(value: float, *others: float | None) -> str:
    """Two decimals; three if it, and what stands beside it, is small."""
    size = max(abs(one) for one in (value, *others) if one is not None)
    if size >= 1000:
        return f"{value:,.0f}"
    return f"{value + 0.0:.{2 if size >= 0.0995 or size < 5e-4 else 3}f}"


def estimate(value: float, low: float | None, high: float | None) -> str:
    """With its interval in brackets, where it has one."""
    said = number(value, low, high)
    if low is None or high is None:
        return said
    return f"{said} [{number(low, value, high)}, {number(high, value, low)}]"


def p_value(p_holm: float) -> str:
    """With Holm's name."""
    return "p_Holm < 0.001" if p_holm < 0.001 else f"p_Holm {p_holm:.3f}".rstrip("0").rstrip(".")


def seeds(row: Mapping[str, Any]) -> str:
    """How many; of tuned methods one or few say little about another training run."""
    count, tuned = row["num_seeds"], not (row["frozen"] and row["other_frozen"])
    if count == 1:
        return "1 seed, so of this training run only" if tuned else "1 seed"
    low, high = row["seeds_low"], row["seeds_high"]
    holds = low is not None and low * high > 0
    surely = row["verdict"] == "better" and tuned and not holds
    return f"{count} seeds{', so of these training runs only' * surely}"


def too_few(number: int, of: str = "") -> str:
    """That so many independent samples, of something, are."""
    return (
        f"{number} independent sample{of} is too few"
        if number == 1
        else (f"{number} independent samples{of} are too few")
    )


def measured(row: Mapping[str, Any], several: bool) -> str:
    """A benchmark; with its tasks where the study has claims over others too."""
    name = str(row["benchmark"]).replace("_", " ")
    return f"{name} ({row['tasks']})" if several else name


def listed(names: Sequence[str]) -> str:
    """The first few, and how many more."""
    if len(names) > NAMED + 1:
        names = [*names[:NAMED], f"{len(names) - NAMED} more"]
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
