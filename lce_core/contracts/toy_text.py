"""Synthetic held-out text: random bytes, and a story on which a small tokenizer is trained."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

STORY = "A ship left the port. Rain fell on the hills. Nobody knew why the lamp was lit. "


@dataclass(frozen=True)
class Streams:
    """Held-out text in memory, with the interface that benchmarks use: token ids by domain."""

    tokens: dict[str, NDArray[np.uint32]]

    @property
    def domains(self) -> tuple[str, ...]:
        return tuple(self.tokens)

    def stream(self, domain: str) -> NDArray[np.uint32]:
        return self.tokens[domain]

    def document_starts(self, domain: str) -> NDArray[np.int64]:
        """Return the index of each document's first token (documents,): one every 1,500 tokens."""
        return np.arange(0, len(self.tokens[domain]), 1500)


def streams(size: int = 20_000) -> Streams:
    """Return held-out text of two domains with `size` random bytes each, equal in all calls."""
    rng = np.random.default_rng(11)
    code, prose = (rng.integers(256, size=size).astype(np.uint32) for _ in range(2))
    return Streams({"code": code, "prose": prose})
