"""How many sequences of which lengths pass through a model: all that their cost depends on."""

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
