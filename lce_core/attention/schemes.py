"""The attention schemes that methods can return; kernels in this package compute them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from lce_core.attention import AttentionScheme, Distance


@dataclass(frozen=True)
class FullCausal(AttentionScheme):
    """Every token up to the query at its true distance; used if each head has its own RoPE base."""

    kernel: ClassVar[str] = "lce_core.attention.causal:full_causal"
    counts_sinks: ClassVar[bool] = True
    caps_scores: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    kept_copies: ClassVar[float] = 0.0

    def distance(self, query: int, key: int) -> int | None:
        return query - key if key <= query else None


@dataclass(frozen=True)
class SlidingWindow(AttentionScheme):
    """The last `window` tokens at their true distance: the local layers of a base model."""

    window: int
    """Number of recent tokens that each query sees, its own token included."""

    kernel: ClassVar[str] = "lce_core.attention.causal:sliding_window"
    counts_sinks: ClassVar[bool] = True
    caps_scores: ClassVar[bool] = True
    differentiable: ClassVar[bool] = True
    uses_flash: ClassVar[bool] = False

    def distance(self, query: int, key: int) -> int | None:
        return query - key if 0 <= query - key < self.window else None

    def mean_keys(self, length: float) -> float:
        return _in_windows(length, self.window, 0)

    def scores_in_memory(self, length: float) -> float:
        return 0.0  # SDPA computes the masked blocks of queries with a fused kernel.


@dataclass(frozen=True)
class Line:
    """Positions of far tokens: token p is scored at min(p * times // group + shift, most)."""

    group: tuple[int, ...] = (1,)
    """Number of tokens that share a position: one for all frequency pairs, or one for each."""
    shift: tuple[float, ...] = (0,)
    """Positions added, as many numbers as in `group`."""
    most: int | None = None
    """Largest position; None for no limit."""
    times: int = 1

    def at(self, token: int) -> tuple[float, ...]:
        pairs = zip(self.group, self.shift, strict=True)
        places = (token * self.times // group + shift for group, shift in pairs)
        return tuple(place if self.most is None else min(place, self.most) for place in places)


TRUE_POSITIONS = Line()


@dataclass(frozen=True)
class Far:
    """Positions at which keys before the window are scored: one line of queries and one of keys."""

    query: Line = TRUE_POSITIONS
    key: Line = TRUE_POSITIONS
    slow: tuple[float, ...] = (1.0,)
    """Divisors of the frequencies, and thereby of distances: one for all pairs, or one for each."""
    first: int | None = None
    """Number of tokens at the start of the text that are visible; None for all tokens. Queries that
    see all `first` tokens must be at the end of their line."""
    beyond: tuple[int, Far] | None = None
    """The smallest distance in the text from which on other positions apply, and these positions;
    only without `first`."""

    def distance(self, query: int, key: int) -> Distance:
        if self.beyond is not None and query - key >= self.beyond[0]:
            return self.beyond[1].distance(query, key)
        if self.first is not None and key >= self.first:
            return None
        numbers = self.query.at(query), self.key.at(key), self.slow
        pairs = max(map(len, numbers))
        each = (number * pairs if len(number) == 1 else number for number in numbers)
        apart = tuple((one - other) / slow for one, other, slow in zip(*each, strict=True))
        return apart if pairs > 1 else apart[0]


@dataclass(frozen=True)
class NearAndFar(AttentionScheme):
    """True distances within a window; keys before the window are scored as `far` states."""

    window: int
    """Number of recent tokens that each query sees at their true distance, its own included."""

    kernel: ClassVar[str] = "lce_core.attention.windowed:attend"
    counts_sinks: ClassVar[bool] = True

    @property
    def far(self) -> Far:
        raise NotImplementedError

    def distance(self, query: int, key: int) -> Distance:
        if key > query:
            return None
        return query - key if query - key < self.window else self.far.distance(query, key)

    @property
    def most_keys(self) -> int | None:
        first = self.far.first
        return None if first is None else self.window + first

    def mean_keys(self, length: float) -> float:
        first = self.far.first
        return length / 2 if first is None else _in_windows(length, self.window, first)


@dataclass(frozen=True)
class LambdaShaped(NearAndFar):
    """A window of recent tokens, and the first tokens at the constant distance `window`."""

    num_global: int
    """Number of tokens at the start of the text that every query sees."""

    @property
    def far(self) -> Far:
        return Far(Line(most=self.window), Line(most=0), first=self.num_global)


@dataclass(frozen=True)
class GroupedNeighbour(NearAndFar):
    """Positions are divided by `group`, a divisor of the window, and continue at its edge."""

    group: int
    """Number of tokens that share one position beyond the window."""

    @property
    def far(self) -> Far:
        shift = self.window - self.window // self.group
        return Far(Line((self.group,), (shift,)), Line((self.group,)))


@dataclass(frozen=True)
class CacheSinks(NearAndFar):
    """A window of recent tokens and the first tokens, at positions counted inside the cache.

    The real key-value cache stores all tokens: StreamingLLM's scores without its smaller memory.
    """

    num_sinks: int
    """Number of tokens at the start of the text that stay in the cache."""

    @property
    def far(self) -> Far:
        return Far(Line(most=self.num_sinks + self.window - 1), first=self.num_sinks)


@dataclass(frozen=True)
class Rectified(NearAndFar):
    """Distances of farther keys stay at `window`, or grow by 1 / `leak` for each token."""

    leak: tuple[float, ...] | None = None
    """Number of tokens per unit of distance beyond the window, one for all frequency pairs or one
    for each; None keeps the distance constant."""

    @property
    def far(self) -> Far:
        if self.leak is None:
            return Far(Line(most=self.window), Line(most=0))
        # (i + (leak - 1) * window - j) / leak = window + (i - j - window) / leak
        shifts = tuple((leak - 1) * self.window for leak in self.leak)
        return Far(Line((1,) * len(shifts), shifts), slow=self.leak)


@dataclass(frozen=True)
class ShiftedSparse(AttentionScheme):
    """Attention inside blocks; half of the heads use blocks shifted by half a block.

    The first H // 2 of H heads attend within blocks of `group` tokens from the row's start. The
    other heads use half a block at each end of the row. Rolling the row, as other code does, would
    let its start attend to its end.
    """

    group: int
    """Number of tokens in a block; even, and a divisor of the row's length."""

    kernel: ClassVar[str] = "lce_core.attention.causal:shifted_sparse"
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
    """Landmark attention as in training: earlier blocks are weighted by their landmarks."""

    block: int
    """Number of tokens in a block; the last one is its landmark."""

    kernel: ClassVar[str] = "lce_core.attention.landmark:grouped_softmax"
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

    kernel: ClassVar[str] = "lce_core.attention.landmark:block_retrieval"
    uses_flash: ClassVar[bool] = False
    one_softmax: ClassVar[bool] = False

    def distance(self, query: int, key: int) -> int | None:
        # Distances to selected blocks depend on scores.
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
    # The first tokens leave the window one by one, so the number of them that a query sees beyond
    # its window grows to `first`.
    beyond = max(0.0, length - window)
    within = min(length, window)
    ahead = min(beyond, first)
    recent = within * within / 2 + beyond * window
    return (recent + ahead * ahead / 2 + (beyond - ahead) * first) / length
