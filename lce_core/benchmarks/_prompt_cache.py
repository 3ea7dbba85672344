"""Prompts kept in memory: a worker asks many methods the same ones, and long ones take seconds."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

from lce_core.benchmarks._retrieval import Prompt
from lce_core.identity import fingerprint

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

P = TypeVar("P", bound=Prompt)


class PromptCache(Generic[P]):
    """The prompts of the cells that were asked last.

    Args:
      max_tokens: tokens of prompts that are kept, 8 bytes each; one cell at least.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._kept: OrderedDict[str, tuple[P, ...]] = OrderedDict()

    def get(self, key: Sequence[object], build: Callable[[], Sequence[P]]) -> tuple[P, ...]:
        """The prompts under `key`, built if they are not there.

        Args:
          key: all that the prompts follow from, as `fingerprint` takes it.
          build: makes the prompts; nothing is kept if it raises.
        """
        name = fingerprint(list(key))
        if name not in self._kept:
            self._kept[name] = tuple(build())
        self._kept.move_to_end(name)
        while len(self._kept) > 1 and self._tokens() > self._max_tokens:
            self._kept.popitem(last=False)
        return self._kept[name]

    def _tokens(self) -> int:
        return sum(len(prompt.ids) for prompts in self._kept.values() for prompt in prompts)


def tokenizer_digest(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """sha256 of vocabulary, merges and rules; None for a tokenizer that cannot be written down."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    return None if backend is None else hashlib.sha256(backend.to_str().encode()).hexdigest()
