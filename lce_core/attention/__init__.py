"""Attention schemes (which keys a query sees, at which distances) and the kernels for them.

Kernels are imported at a model's first forward pass, so code that only describes methods does not
import torch.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from lce_core.rope import RopeTable

Distance = float | tuple[float, ...] | None
"""Relative position of a query and a key, or one for each frequency pair; None if invisible."""


@dataclass(frozen=True)
class AttentionScheme:
    """Base class of attention schemes, for methods that change more than the RoPE frequencies.

    The kernel is called with the scheme and `lce_core.attention.inputs.AttentionInputs` and returns
    the attention output (batch, heads, queries, head_dim). `lce check` compares it with dense
    attention at the scheme's distances.
    """

    kernel: ClassVar[str]
    """Import path of the kernel function: "module:function"."""
    differentiable: ClassVar[bool] = False
    """True if gradients flow through the kernel; if False, training raises SpecError."""
    heads_alike: ClassVar[bool] = True
    """True if all heads follow the same rule, so that a few heads may be computed at a time."""
    uses_flash: ClassVar[bool] = True
    """True if the kernel uses `lce_core.attention.flash`, False if it uses plain matrix
    products."""
    one_softmax: ClassVar[bool] = True
    """True if the weights of a query are one softmax over the keys that `distance` makes visible.
    If False, `lce check` cannot compare the kernel, and the method must be approximate."""

    counts_sinks: ClassVar[bool] = False
    """True if the kernel adds `AttentionInputs.sinks` to the softmax, as models with sinks need."""

    caps_scores: ClassVar[bool] = False
    """True if the kernel applies `AttentionInputs.cap`, as Gemma 2 needs."""

    kept_copies: ClassVar[float] = 1.0
    """Copies of queries, keys and values that the kernel keeps for the backward pass, beyond the
    rotated states of a fused kernel. The memory estimate of training reads it."""

    def distance(self, query: int, key: int) -> Distance:
        """Return the relative position at which a query scores a key; None if it is not visible.

        Arguments are positions in the text. A tuple has one relative position per frequency pair.
        """
        raise NotImplementedError(f"{type(self).__name__} has no function distance(query, key)")

    def distances_of(self, layer: int, head: int, num_heads: int) -> Callable[[int, int], Distance]:
        """Return `distance` of one query head of a layer; override it if the rules differ."""
        return self.distance

    @property
    def most_keys(self) -> int | None:
        """Largest number of keys that a query sees; None if each sees all tokens up to its own."""
        return None

    def query_factor(self, query: int) -> float:
        """Return the factor of all scores of the query at this position, like 1 / temperature."""
        return 1.0

    def mean_keys(self, length: float) -> float:
        """Return the mean number of keys that a query reads in `length` tokens, for costs."""
        return length / 2

    def scores_in_memory(self, length: float) -> float:
        """Return how many scores per query and head exist at one time, for memory estimates."""
        # Plain matrix products also compute the scores that causality masks.
        return 0.0 if self.uses_flash else 2 * self.mean_keys(length)


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """RoPE table and attention scheme of one layer, for one request length."""

    table: RopeTable
    scheme: AttentionScheme | None = None
    """None means full causal attention."""
    log_base: int | None = None
    """Number C of keys from which on the scores of a query that sees n keys are multiplied by ln n
    / ln C; None for no factor."""

    @cached_property
    def key(self) -> tuple[object, ...]:
        table = self.table
        return table.inv_freq.tobytes(), table.attention_factor, self.scheme, self.log_base

    def query_factor(self, query: int) -> float:
        if self.log_base is None:
            return 1.0 if self.scheme is None else self.scheme.query_factor(query)
        most = None if self.scheme is None else self.scheme.most_keys
        num_keys = query + 1 if most is None else min(query + 1, most)
        return max(1.0, math.log(num_keys) / math.log(self.log_base))
