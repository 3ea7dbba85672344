"""What passes through a model, and what it writes: all that the cost of a cell depends on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self


@dataclass(frozen=True)
class Sequences:
    """Lengths of sequences, their order aside."""

    counts: Mapping[int, int] = field(default_factory=dict)
    """How many sequences there are of each length in tokens."""

    @classmethod
    def of(cls, lengths: Iterable[int]) -> Self:
        """Sequences of these lengths."""
        return cls(Counter(lengths))

    @property
    def num_tokens(self) -> int:
        """Tokens of all sequences."""
        return sum(length * count for length, count in self.counts.items())

    @property
    def lengths(self) -> dict[str, float]:
        """Tokens of a sequence: `mean`, `min` and `max` over all of them; empty without any."""
        if not self.counts:
            return {}
        mean = self.num_tokens / sum(self.counts.values())
        return {"mean": mean, "min": min(self.counts), "max": max(self.counts)}

    @property
    def mean_length(self) -> float:
        """Length of the sequence in which a token lies, mean over tokens; 0 without any.

        A token's attention costs in proportion to the length of its sequence, so as many tokens in
        sequences of this one length cost the same.
        """
        tokens = self.num_tokens
        squares = sum(length * length * count for length, count in self.counts.items())
        return squares / tokens if tokens else 0.0


@dataclass(frozen=True)
class Answers:
    """What a cell lets a model write."""

    number: int = 0
    """Prompts that are answered."""
    longest: int = 0
    """Tokens that each answer has at most; complete ones end earlier."""
