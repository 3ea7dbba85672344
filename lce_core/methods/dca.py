"""Dual Chunk Attention: positions inside chunks of the text, so that no distance is untrained.

Design: the base model's own frequencies. The text is cut into chunks of c = chunk - window tokens,
and the key at position j is rotated to j mod c. The query at position i is rotated to i mod c for
the keys of its own chunk, to min(i mod c + c, chunk) for the keys of the previous chunk, and to
`chunk` for the keys of all earlier chunks. Distances are true within a chunk and, from its first
`window` queries, to the previous chunk. No distance exceeds `chunk`, at any length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from lce_core.attention import AttentionScheme
from lce_core.errors import SpecError
from lce_core.evidence import PHI2, value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry

if TYPE_CHECKING:
    import torch

    from lce_core.attention.inputs import AttentionInputs
    from lce_core.attention.partial import Partial


@dataclass(frozen=True)
class DualChunk(AttentionScheme):
    """Every token up to the query, at positions counted inside chunks."""

    chunk: int
    """Largest distance, in tokens."""
    window: int
    """Number of preceding tokens that every query sees at least at their true distance."""

    kernel: ClassVar[str] = f"{__name__}:attend"
    counts_sinks: ClassVar[bool] = True

    @property
    def period(self) -> int:
        """Tokens in a chunk of the text, c."""
        return self.chunk - self.window

    def distance(self, query: int, key: int) -> int | None:
        if key > query:
            return None
        period = self.period
        between = query // period - key // period
        inside, succeeding = query % period, min(query % period + period, self.chunk)
        return (inside, succeeding, self.chunk)[min(between, 2)] - key % period


def attend(scheme: DualChunk, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output of DualChunk (batch, heads, queries, head_dim)."""
    from lce_core.attention.chunks import most_together
    from lce_core.attention.partial import concatenate, with_sinks
    from lce_core.attention.placement import Placement

    first, length, period = inputs.first_query, inputs.length, scheme.period
    keys = inputs.placed(Placement(inputs.table, period=period), slice(0, length))
    step = length if most_together(inputs.query) else period
    parts = []
    for start in range(first - first % step, length, step):
        places = slice(max(start, first), min(start + step, length))
        query = inputs.query[:, :, places.start - first : places.stop - first]
        part = _attend_from(scheme, inputs, keys, query, places)
        parts.append(with_sinks(part, inputs.sinks))
    return concatenate(parts).output


def _attend_from(
    scheme: DualChunk,
    inputs: AttentionInputs,
    keys: torch.Tensor,
    query: torch.Tensor,
    places: slice,
) -> Partial:
    """Attend from consecutive queries to their own chunks, the previous ones and all earlier ones.

    The three sets of keys are disjoint, so their results are merged by their log-sum-exp. Whole
    chunks become a batch dimension. Keys are rotated, queries are not.
    """
    import torch

    from lce_core.attention.chunks import as_chunks, as_texts, runs
    from lce_core.attention.flash import attend_all, attend_causal
    from lce_core.attention.partial import Partial, concatenate, merge
    from lce_core.attention.placement import Placement

    rotate, period, scaling = inputs.rotation(), scheme.period, inputs.scaling
    rotated = Placement(inputs.table, period=period).rotate(query, places, inputs.part)

    def in_chunks(
        kernel: Callable[..., Partial], rotated: torch.Tensor, start: int, back: int
    ) -> Partial:
        parts = []
        for run in runs(start, places.stop, period, most=places.stop - start):
            number, first = run.num_chunks, run.start - back * period
            seen = slice(first, first + number * period if back else run.stop)
            some = rotated[:, :, run.first - start : run.stop - start]
            states = (some, keys[:, :, seen], inputs.value[:, :, seen])
            found = kernel(*(as_texts(one, number) for one in states), scaling)
            parts.append(Partial(*(as_chunks(one, number) for one in found)))
        return concatenate(parts)

    part = in_chunks(attend_causal, rotated, places.start, back=0)
    if places.stop > (start := max(places.start, period)):
        positions = torch.arange(start, places.stop, dtype=torch.float64, device=query.device)
        succeeding = (positions % period + period).clamp(max=scheme.chunk)
        rotated = rotate(query[:, :, start - places.start :], succeeding)
        previous = in_chunks(attend_all, rotated, start, back=1)
        merge(part, start - places.start, previous)
    if places.stop > (start := max(places.start, 2 * period)):
        farthest = slice(scheme.chunk, scheme.chunk + 1)
        rotated = rotate(query[:, :, start - places.start :], farthest)
        earlier = []
        for run in runs(start, places.stop, period, most=0):
            some, seen = rotated[:, :, run.first - start : run.stop - start], run.start - period
            before = keys[:, :, :seen], inputs.value[:, :, :seen]
            earlier.append(attend_all(some, *before, scaling))
        merge(part, start - places.start, concatenate(earlier))
    return part


class DualChunkAttention(ApproximateMethod):
    """Attention with positions counted inside chunks of the text, for inference."""

    chunk: int | None = Field(default=None, ge=2)
    """Largest distance in tokens; None means 3/4 of the trained context."""
    window: int | None = Field(default=None, ge=1)
    """Number of preceding tokens that every query sees at least at their true distance; the text is
    cut into chunks of chunk - window tokens. None means 1/16 of the trained context."""

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> DualChunk:
        trained = geometry.trained_context
        chunk = max(2, trained * 3 // 4) if self.chunk is None else self.chunk
        window = max(1, trained // 16) if self.window is None else self.window
        return DualChunk(chunk=chunk, window=window)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        scheme = self.attention(geometry, lengths)
        self.check_trained("chunk", scheme.chunk, geometry)
        if 2 * scheme.window > scheme.chunk:
            raise SpecError(
                "dca.window",
                scheme.window,
                f"at most {scheme.chunk // 2}, half of the chunk",
                "write a smaller window or a larger chunk",
            )


METHOD = DualChunkAttention
SOURCE = Source(
    paper="arXiv:2402.17463",
    place="section 3; chunk and window from the reference, 3/4 and 1/16 of the trained context",
    reference="github.com/HKUNLP/ChunkLlama@15c5787c79ee726d6edeaae838f5d8cb5adb3187",
    differs="results of key sets are merged in at least fp32; later versions of the reference use a"
    " window of 1/8 of the trained context and scale queries and keys by 0.05 ln s + 1",
)
EVIDENCE = (
    value(
        "distance",
        (2815, 1, 256, 257, 257, 3072, 3072, 257, None),
        "chunk 3072, window 256, chunks of 2816 tokens, by hand: own chunk, previous, earlier",
        positions=(
            (2815, 0),
            (2816, 2815),
            (3071, 2815),
            (3072, 2815),
            (3073, 2816),
            (5632, 0),
            (60000, 28160),
            (60000, 2815),
            (5, 6),
        ),
    ),
    value(
        "distance",
        (5, 6, 7, 8, 10, 6, 8, 4),
        "chunk 10 and window 4, chunks of 6 tokens, counted by hand",
        positions=((5, 0), (6, 0), (7, 0), (8, 0), (17, 6), (8, 2), (17, 2), (12, 8)),
        chunk=10,
        window=4,
    ),
    value(
        "distance",
        (1536, 129),
        "chunk 1536 and window 128 from a trained context of 2048, by hand",
        positions=((1536, 0), (2816, 1407)),
        geometry=PHI2,
    ),
    value("reach", None, "no distance exceeds the chunk"),
)
EXAMPLES: Examples = ({}, {"chunk": 8, "window": 3})
VERSION = 1
