"""The attention schemes that methods can return; kernels in this package compute them.

Each scheme defines itself by `distance(query, key)`; `lce check` compares its kernel with these
distances. The weights of GroupedSoftmax and BlockRetrieval are not a single softmax over distances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from lce_core.attention import AttentionScheme


@dataclass(frozen=True)
class FullCausal(AttentionScheme):
    """Every token up to the query at its true distance; used if each head has its own RoPE base."""

    kernel: ClassVar[str] = "lce_core.attention.causal:full_causal"
    counts_sinks: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    kept_copies: ClassVar[float] = 0.0

    def distance(self, query: int, key: int) -> int | None:
        return query - key if key <= query else None


@dataclass(frozen=True)
class SlidingWindow(AttentionScheme):
    """The last `window` tokens at their true distance: the local layers of a base model."""

    window: int
    """Number of recent tokens that each query sees, its own token included."""

    kernel: ClassVar[str] = "lce_core.attention.sliding:sliding_window"
    counts_sinks: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    uses_flash: ClassVar[bool] = False

    def distance(self, query: int, key: int) -> int | None:
        return query - key if 0 <= query - key < self.window else None

    def mean_keys(self, length: float) -> float:
        return _in_windows(length, self.window, 0)

    def scores_in_memory(self, length: float) -> float:
        """Return 0: SDPA computes the masked blocks of queries with a fused kernel."""
        return 0.0


@dataclass(frozen=True)
class LambdaShaped(AttentionScheme):
    """A window of recent tokens, and the first tokens at a constant distance."""

    window: int
    """Number of recent tokens that each query sees, its own token included; also the distance at
    which the first tokens are scored once they have left the window."""
    num_global: int
    """Number of tokens at the start of the text that every query sees."""

    kernel: ClassVar[str] = "lce_core.attention.windowed:lambda_shaped"
    counts_sinks: ClassVar[bool] = True

    def distance(self, query: int, key: int) -> int | None:
        if key > query:
            return None
        if query - key < self.window:
            return query - key
        return self.window if key < self.num_global else None

    def mean_keys(self, length: float) -> float:
        return _in_windows(length, self.window, self.num_global)


@dataclass(frozen=True)
class GroupedNeighbour(AttentionScheme):
    """True distances within a window; positions are divided by `group` for farther keys."""

    window: int
    """Recent tokens, the query's own included, at their true distance; a multiple of `group`."""
    group: int
    """Number of tokens that share one position beyond the window."""

    kernel: ClassVar[str] = "lce_core.attention.windowed:grouped_neighbour"
    counts_sinks: ClassVar[bool] = True

    def distance(self, query: int, key: int) -> int | None:
        """Add window - window // group beyond the window, to continue at its edge."""
        if key > query:
            return None
        if query - key < self.window:
            return query - key
        shift = self.window - self.window // self.group
        return query // self.group - key // self.group + shift


@dataclass(frozen=True)
class CacheSinks(AttentionScheme):
    """A window of recent tokens and the first tokens, at positions counted inside the cache.

    The cache holds the first `num_sinks` (S) tokens and the last `window` (W) tokens. A token's
    position is its index in the cache at the time of the query. The query is last, at position
    min(i, S + W - 1): distances in the window are true, that of sink j is min(i, S + W - 1) - j.
    """

    window: int
    """Number of recent tokens in the cache, the query's own included."""
    num_sinks: int
    """Number of tokens at the start of the text that stay in the cache."""

    kernel: ClassVar[str] = "lce_core.attention.windowed:cache_sinks"
    counts_sinks: ClassVar[bool] = True

    def distance(self, query: int, key: int) -> int | None:
        if key > query:
            return None
        if query - key < self.window:
            return query - key
        if key >= self.num_sinks:
            return None
        return min(query, self.num_sinks + self.window - 1) - key

    def mean_keys(self, length: float) -> float:
        return _in_windows(length, self.window, self.num_sinks)


@dataclass(frozen=True)
class Rectified(AttentionScheme):
    """True distances within a window; for farther keys they stay at `window` or grow slowly."""

    window: int
    """Recent tokens at their true distance; also the first distance beyond them."""
    leak: int | None = None
    """Number of tokens per unit of distance beyond the window; None keeps the distance constant."""

    kernel: ClassVar[str] = "lce_core.attention.windowed:rectified"
    counts_sinks: ClassVar[bool] = True

    def distance(self, query: int, key: int) -> float | None:
        if key > query:
            return None
        beyond = query - key - self.window
        if beyond < 0:
            return query - key
        return self.window if self.leak is None else self.window + beyond / self.leak


@dataclass(frozen=True)
class ShiftedSparse(AttentionScheme):
    """Attention inside blocks; half of the heads use blocks shifted by half a block.

    The first H // 2 of H heads attend within blocks of `group` tokens from the row's start. The
    other heads use half a block at each end of the row and whole blocks between them. Rolling the
    row by half a block, as other code does, would let the row's start attend to its end.
    """

    group: int
    """Number of tokens in a block; even, and a divisor of the row's length."""

    kernel: ClassVar[str] = "lce_core.attention.shifted_sparse:attend"
    counts_sinks: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    heads_alike: ClassVar[bool] = False
    kept_copies: ClassVar[float] = 0.5
    """The shifted half of the heads joins the ends of the row anew, at most all of its tokens."""

    def distance(self, query: int, key: int, shifted: bool = False) -> int | None:
        shift = self.group // 2 if shifted else 0
        same = (query + shift) // self.group == (key + shift) // self.group
        return query - key if same and key <= query else None

    def distances_of(
        self, layer: int, head: int, num_heads: int
    ) -> Callable[[int, int], int | None]:
        return partial(self.distance, shifted=head >= num_heads // 2)

    def mean_keys(self, length: float) -> float:
        if length < self.group:
            return length / 2
        # Plain heads see g / 2 keys on average. Shifted heads see g / 4 in their two half blocks (g
        # tokens) and g / 2 elsewhere, g / 2 - g^2 / (4 L) on average. Half of the heads are of each
        # kind.
        return self.group / 2 - self.group**2 / (8 * length)


@dataclass(frozen=True)
class GroupedSoftmax(AttentionScheme):
    """Landmark attention as in training: earlier blocks are weighted by their landmarks.

    Distances are true. `lce_core.attention.landmark` has the formula of the weights.
    """

    block: int
    """Number of tokens in a block; the last one is its landmark."""

    kernel: ClassVar[str] = "lce_core.attention.landmark:attend"
    differentiable: ClassVar[bool] = True
    uses_flash: ClassVar[bool] = False
    one_softmax: ClassVar[bool] = False

    def distance(self, query: int, key: int) -> int | None:
        return query - key if key <= query else None


@dataclass(frozen=True)
class BlockRetrieval(AttentionScheme):
    """Landmark attention at inference: the query's chunk and selected blocks before the chunk."""

    block: int
    top_k: int
    """Number of blocks before the chunk that each query and head selects by landmark scores."""
    chunk: int
    """Tokens in a chunk, within which a query sees every earlier token; a multiple of `block`."""

    kernel: ClassVar[str] = "lce_core.attention.retrieval:attend"
    uses_flash: ClassVar[bool] = False
    one_softmax: ClassVar[bool] = False

    def distance(self, query: int, key: int) -> int | None:
        """Return distances within the query's chunk; those to selected blocks depend on scores."""
        return query - key if query // self.chunk * self.chunk <= key <= query else None

    def mean_keys(self, length: float) -> float:
        if length <= self.chunk:
            return length / 2
        # A query reads its chunk, the landmarks before it and `top_k` blocks. `before` is the
        # fraction of tokens that have at least one chunk before their own.
        before = (length - self.chunk) / length
        landmarks = (length - self.chunk) / 2 / self.block
        return self.chunk / 2 + landmarks + before * self.top_k * self.block


def _in_windows(length: float, window: int, first: int) -> float:
    """Return the mean number of keys per query for a window plus the text's `first` tokens."""
    # Queries within the first window see a growing number of keys, later queries the whole window.
    # The first tokens leave the window one by one, so the number of them that a query sees beyond
    # its window grows to `first`.
    beyond = max(0.0, length - window)
    within = min(length, window)
    ahead = min(beyond, first)
    recent = within * within / 2 + beyond * window
    return (recent + ahead * ahead / 2 + (beyond - ahead) * first) / length
