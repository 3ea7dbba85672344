"""A sentence and the numbers in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Topic = Literal["best", "base", "pair", "length", "order"]
"""Who is best of all at a benchmark and a length; a method against the base model; two other
methods; how long a context a method uses; whether perplexity predicts a benchmark."""
Verdict = Literal[
    "better",
    "not in every seed",
    "the same",
    "no difference found",
    "too few",
    "holds",
    "order",
    "no order found",
]


@dataclass(frozen=True)
class Claim:
    """One finding, with its sentence. What does not apply to its topic is None."""

    topic: Topic
    verdict: Verdict
    text: str
    """One sentence without its full stop, in ASCII."""
    base_model: str
    benchmark: str
    eval_length: int | None = None
    """Tokens; None for how long a context a method uses."""
    task: str | None = None
    """None for the mean over several tasks."""
    method: str | None = None
    """The better one, where one is."""
    frozen: bool | None = None
    other_method: str | None = None
    other_frozen: bool | None = None
    difference: float | None = None
    """Of the first method less the other, in the unit of the benchmark."""
    low: float | None = None
    high: float | None = None
    """Of a 95 % interval of the difference, the length in tokens, or Kendall's correlation."""
    value: float | None = None
    """Of the first method: its score, or the tokens it uses; Kendall's correlation of an order."""
    p_holm: float | None = None
    holm_family: str | None = None
    """Comparisons that `p_holm` holds for."""
    num_samples: int | None = None
    """Independent prompts or documents."""
    num_seeds: int | None = None
    smallest_detectable: float | None = None
    at_target: bool = False
    """Whether it is at the longest length of its benchmark up to the target context."""

    @property
    def sentence(self) -> str:
        """The text as a sentence of its own; names stay as they are: None is not `none`."""
        if self.text.startswith((self.method or self.base_model, self.base_model)):
            return f"{self.text}."
        return f"{self.text[:1].upper()}{self.text[1:]}."

    def mentions(self, method: str, frozen: bool | None = None) -> bool:
        """Whether it is about this method."""
        named = ((self.method, self.frozen), (self.other_method, self.other_frozen))
        return any(name == method and frozen in (None, state) for name, state in named)
