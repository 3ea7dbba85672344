"""The attention schemes at hand, as sizes; the kernels beside compute them.

`distance` says at which relative position a query scores a key, or None where it does not see it:
the definition of a scheme in one line, which documentation and tests read. It holds for all heads,
or says for which. Schemes whose weights are no single softmax over such distances say the rest in
words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lce_core.attention import AttentionScheme


@dataclass(frozen=True)
class FullCausal(AttentionScheme):
    """Every earlier token at its true distance; for tables with one base per head."""

    kernel: ClassVar[str] = "lce_core.attention.full_causal:attend"
    differentiable: ClassVar[bool] = True

    def distance(self, query: int, key: int) -> int | None:
        """Relative position of the key, None for later tokens."""
        return query - key if key <= query else None


@dataclass(frozen=True)
class LambdaShaped(AttentionScheme):
    """A window of recent tokens, and the first tokens at a distance that never grows."""

    window: int
    """Recent tokens each token sees, itself included; also the ceiling of distances."""
    num_global: int
    """First tokens of the text that every token sees."""

    kernel: ClassVar[str] = "lce_core.attention.lambda_shaped:attend"

    def distance(self, query: int, key: int) -> int | None:
        """True distance within the window, `window` for the first tokens, else None."""
        if key > query:
            return None
        if query - key < self.window:
            return query - key
        return self.window if key < self.num_global else None

    def mean_keys(self, length: float) -> float:
        """Those of the window, and the first tokens."""
        return _in_windows(length, self.window, self.num_global)


@dataclass(frozen=True)
class GroupedNeighbour(AttentionScheme):
    """True distances to neighbours, floored positions beyond them."""

    window: int
    """Neighbours at their true distance; a multiple of `group`."""
    group: int
    """Tokens that share one position beyond the window."""

    kernel: ClassVar[str] = "lce_core.attention.grouped_neighbour:attend"

    def distance(self, query: int, key: int) -> int | None:
        """True distance within the window, else the distance of group indices, shifted."""
        if key > query:
            return None
        if query - key < self.window:
            return query - key
        shift = self.window - self.window // self.group
        return query // self.group - key // self.group + shift


@dataclass(frozen=True)
class CacheSinks(AttentionScheme):
    """A window of recent tokens and the first tokens, at positions counted inside the cache.

    The cache holds the first `num_sinks` tokens and the last `window` ones, and a token's position
    is its index in the cache at the moment of the query. Query i finds min(i + 1, S + W) tokens
    there and is the last of them, at position min(i, S + W - 1); sink j is at position j and the
    token d places before the query is d positions before it. So distances within the window are
    true, and the distance to a sink beyond it is min(i, S + W - 1) - j.
    """

    window: int
    """Recent tokens in the cache, the query's own included."""
    num_sinks: int
    """First tokens of the text, which stay in the cache."""

    kernel: ClassVar[str] = "lce_core.attention.cache_sinks:attend"

    def distance(self, query: int, key: int) -> int | None:
        """True distance within the window, that inside the cache for sinks, else None."""
        if key > query:
            return None
        if query - key < self.window:
            return query - key
        if key >= self.num_sinks:
            return None
        return min(query, self.num_sinks + self.window - 1) - key

    def mean_keys(self, length: float) -> float:
        """Those of the window, and the sinks."""
        return _in_windows(length, self.window, self.num_sinks)


@dataclass(frozen=True)
class Rectified(AttentionScheme):
    """True distances within a window; beyond it they stay at `window`, or grow slowly."""

    window: int
    """Tokens at their true distance; also the distance at which the rest begins."""
    leak: int | None = None
    """Tokens for which the distance grows by one beyond the window; None: it does not grow."""

    kernel: ClassVar[str] = "lce_core.attention.rectified:attend"

    def distance(self, query: int, key: int) -> float | None:
        """True distance within the window, else window + (distance - window) / leak."""
        if key > query:
            return None
        beyond = query - key - self.window
        if beyond < 0:
            return query - key
        return self.window if self.leak is None else self.window + beyond / self.leak


@dataclass(frozen=True)
class ShiftedSparse(AttentionScheme):
    """Attention inside blocks; half of the heads have their blocks shifted by half a block.

    Of H heads the first H // 2 see blocks of `group` tokens from the row's start on. The others see
    half a block at either end and whole blocks between: the row's end never meets its start, which
    rolling the row by half a block would let happen.
    """

    group: int
    """Tokens of a block; even, and a divisor of the row's length."""

    kernel: ClassVar[str] = "lce_core.attention.shifted_sparse:attend"
    differentiable: ClassVar[bool] = True
    heads_alike: ClassVar[bool] = False

    def distance(self, query: int, key: int, shifted: bool = False) -> int | None:
        """True distance within a block of the plain or the shifted heads, else None."""
        shift = self.group // 2 if shifted else 0
        same = (query + shift) // self.group == (key + shift) // self.group
        return query - key if same and key <= query else None

    def mean_keys(self, length: float) -> float:
        """Half a block, mean over plain heads and shifted ones with their two half blocks."""
        if length < self.group:
            return length / 2
        return self.group / 2 - self.group**2 / (8 * length)


@dataclass(frozen=True)
class GroupedSoftmax(AttentionScheme):
    """Every earlier token at its true distance, weighted by block through landmarks."""

    block: int
    """Tokens of a block; the last of them is its landmark."""

    kernel: ClassVar[str] = "lce_core.attention.landmark:attend"
    differentiable: ClassVar[bool] = True
    uses_flash: ClassVar[bool] = False

    def distance(self, query: int, key: int) -> int | None:
        """Relative position of the key, None for later tokens."""
        return query - key if key <= query else None


@dataclass(frozen=True)
class BlockRetrieval(AttentionScheme):
    """The query's chunk as in GroupedSoftmax, and the blocks before it that landmarks select."""

    block: int
    """Tokens of a block; the last of them is its landmark."""
    top_k: int
    """Blocks before the chunk that each query and head selects."""
    chunk: int
    """Tokens that attend to each other; a multiple of `block`."""

    kernel: ClassVar[str] = "lce_core.attention.retrieval:attend"
    uses_flash: ClassVar[bool] = False

    def distance(self, query: int, key: int) -> int | None:
        """True distance within the query's chunk; None before it, where scores decide."""
        return query - key if query // self.chunk * self.chunk <= key <= query else None

    def mean_keys(self, length: float) -> float:
        """Half a chunk; before it every landmark, and the selected blocks."""
        if length <= self.chunk:
            return length / 2
        before = (length - self.chunk) / length  # share of tokens that have chunks before theirs
        landmarks = (length - self.chunk) / 2 / self.block
        return self.chunk / 2 + landmarks + before * self.top_k * self.block


def _in_windows(length: float, window: int, first: int) -> float:
    """Mean number of keys in a window of recent tokens and among the first tokens before it."""
    beyond = max(0.0, length - window)
    within = min(length, window)
    ahead = min(beyond, first)
    recent = within * within / 2 + beyond * window
    return (recent + ahead * ahead / 2 + (beyond - ahead) * first) / length
