"""Lengths of the texts that a model reads and writes, from which the cost model predicts times."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Sequences:
    """Lengths of the sequences that a model processes; input of the cost model."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """Number of sequences, by length in tokens."""

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Self:
        return cls(Counter(lengths))

    @property
    def num_tokens(self) -> int:
        return sum(length * count for length, count in self.counts.items())

    @property
    def lengths(self) -> dict[str, float]:
        """Mean, minimum and maximum length in tokens, as `mean`, `min` and `max`."""
        if not self.counts:
            return {}
        mean = self.num_tokens / sum(self.counts.values())
        return {"mean": mean, "min": min(self.counts), "max": max(self.counts)}

    @property
    def mean_length(self) -> float:
        """Mean length of the sequence that a token belongs to; 0 if there are no sequences.

        The same number of tokens in sequences of this one length has the same attention cost.
        """
        tokens = self.num_tokens
        squares = sum(length * length * count for length, count in self.counts.items())
        return squares / tokens if tokens else 0.0


@dataclass(frozen=True)
class Answers:
    """Number and maximum length of the answers that a model generates in an evaluation."""

    number: int = 0
    longest: int = 0
    """Maximum length of an answer in tokens; generation may stop earlier."""
