"""A finding: one sentence and its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Topic = Literal["base", "pair", "length", "order"]
"""Subject of the claim: `base` is a method against the base model, `pair` two other methods,
`length` the effective context length of a method, `order` whether perplexity predicts a benchmark.
"""
Verdict = Literal["better", "the same", "undecided", "too few", "holds", "order", "no order found"]


@dataclass(frozen=True)
class Claim:
    """One finding and its sentence. Fields that do not apply to the topic are None."""

    topic: Topic
    verdict: Verdict
    text: str
    """One ASCII sentence without the full stop."""
    base_model: str
    benchmark: str
    eval_length: int | None = None
    """Evaluated length in tokens; None for topic `length`."""
    task: str | None = None
    """Task name; None for the mean over several tasks."""
    method: str | None = None
    """The method that the claim is about; the better one if the difference is significant."""
    frozen: bool | None = None
    other_method: str | None = None
    other_frozen: bool | None = None
    """The method that the first one is compared with."""
    difference: float | None = None
    """Score of the first method minus that of the other, in the benchmark's unit."""
    low: float | None = None
    high: float | None = None
    """Upper end of the 95 % interval (`low` is the lower end) of the difference, the effective
    length in tokens, or Kendall's correlation."""
    value: float | None = None
    """Score or effective length (tokens) of the first method; Kendall's correlation for topic
    `order`."""
    p_adjusted: float | None = None
    family: str | None = None
    """Comparisons that `p_adjusted` is corrected for: primary (predicted by the study file), short
    context (with the base model within its trained context) or exploratory."""
    num_samples: int | None = None
    """Number of independent prompts or documents."""
    num_seeds: int | None = None
    smallest_detectable: float | None = None
    """Smallest difference that the test detects with 80 % power."""
    num_needed: int | None = None
    """Number of training seeds or else of independent samples that would decide an undecided
    comparison with 80 % power, if the true difference equals the measured one."""

    def mentions(self, method: str, frozen: bool | None = None) -> bool:
        """Return True if either side is this method; `frozen` None matches both variants."""
        named = [(self.method, self.frozen), (self.other_method, self.other_frozen)]
        return any(name == method and frozen in (None, state) for name, state in named)
