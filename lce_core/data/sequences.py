"""Lengths of the texts that a model reads and writes, from which its cost is estimated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Sequences:
    """Number of sequences of each length that a model processes; the cost model's input."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """Number of sequences of each length in tokens."""

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Self:
        return cls(Counter(lengths))

    @property
    def num_tokens(self) -> int:
        return sum(length * count for length, count in self.counts.items())

    @property
    def lengths(self) -> dict[str, float]:
        """`mean`, `min` and `max` tokens of a sequence; empty without sequences."""
        if not self.counts:
            return {}
        mean = self.num_tokens / sum(self.counts.values())
        return {"mean": mean, "min": min(self.counts), "max": max(self.counts)}

    @property
    def mean_length(self) -> float:
        """Mean length of a sequence, weighted by its length; 0 without sequences.

        A token's attention cost is proportional to the length of its sequence, so as many tokens in
        sequences of this one length cost the same.
        """
        tokens = self.num_tokens
        squares = sum(length * length * count for length, count in self.counts.items())
        return squares / tokens if tokens else 0.0


@dataclass(frozen=True)
class Answers:
    """Number and maximum length of the answers that a model generates in a cell."""

    number: int = 0
    """Number of prompts that get an answer."""
    longest: int = 0
    """Maximum tokens per answer; an answer that is complete ends earlier."""
