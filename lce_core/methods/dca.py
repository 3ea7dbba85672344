"""Dual Chunk Attention: positions inside chunks of the text, so that no distance is untrained.

Design: the base model's own frequencies. The text is cut into chunks of c = chunk - window tokens,
and the key at position j is rotated to j mod c. The query at position i is rotated to i mod c for
the keys of its own chunk, to min(i mod c + c, chunk) for the keys of the previous chunk, and to
`chunk` for the keys of all earlier chunks. Distances are true within a chunk and, from its first
`window` queries, to the previous chunk. No distance exceeds `chunk`, at any length.

Source: An et al. 2024, arXiv:2402.17463.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, ClassVar

from pydantic import Field

from lce_core.attention import AttentionScheme
from lce_core.errors import SpecError
from lce_core.evidence import PHI2, value
from lce_core.methods import Method
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
        """Number of tokens in a chunk of the text, c = chunk - window."""
        return self.chunk - self.window

    def distance(self, query: int, key: int) -> int | None:
        """Return the position of the query for the key's chunk, minus the position of the key.

        Return None if the key comes after the query.
        """
        if key > query:
            return None
        period = self.period
        between = query // period - key // period
        inside, succeeding = query % period, min(query % period + period, self.chunk)
        return (inside, succeeding, self.chunk)[min(between, 2)] - key % period


def attend(scheme: DualChunk, inputs: AttentionInputs) -> torch.Tensor:
    """Return the attention output of DualChunk (batch, heads, queries, head_dim).

    The queries of each chunk attend to the keys of their own chunk, of the previous chunk and of
    all earlier chunks. These key sets are disjoint, so the results are merged by their log-sum-exp.
    """
    import torch

    from lce_core.attention.partial import merge, with_sinks
    from lce_core.attention.placement import Placement

    first, period = inputs.first_query, scheme.period
    keys = inputs.placed(Placement(inputs.table, period=period), slice(0, inputs.length))
    output = torch.empty_like(inputs.query)
    for start in range(first - first % period, inputs.length, period):
        rows = slice(max(start - first, 0), start + period - first)
        parts = _over_key_sets(scheme, inputs, keys, start, rows)
        output[:, :, rows] = with_sinks(reduce(merge, parts), inputs.sinks).output
    return output


def _over_key_sets(
    scheme: DualChunk, inputs: AttentionInputs, keys: torch.Tensor, start: int, rows: slice
) -> Iterator[Partial]:
    """Attend from the queries of one chunk to the keys of that chunk, the previous and all earlier.

    Yields one result per set of keys, in this order; a set without keys is left out.

    Args:
      scheme: sizes.
      inputs: queries and values.
      keys: (batch, kv_heads, keys, head_dim) of the whole text, rotated.
      start: position of the chunk's first token.
      rows: indices of the chunk's queries in `inputs.query`.
    """
    import torch

    from lce_core.attention.flash import attend_all, attend_causal

    query, values, scaling = inputs.query[:, :, rows], inputs.value, inputs.scaling
    rotate, period = inputs.rotation(), scheme.period
    begin = rows.start + inputs.first_query - start
    inside = slice(begin, begin + query.shape[2])
    own = slice(start, start + inside.stop)
    yield attend_causal(rotate(query, inside), keys[:, :, own], values[:, :, own], scaling)
    if start >= period:
        places = torch.arange(inside.start, inside.stop, device=query.device) + period
        succeeding = rotate(query, places.clamp(max=scheme.chunk))
        previous = slice(start - period, start)
        yield attend_all(succeeding, keys[:, :, previous], values[:, :, previous], scaling)
    if start > period:
        farthest = rotate(query, slice(scheme.chunk, scheme.chunk + 1))
        before = slice(0, start - period)
        yield attend_all(farthest, keys[:, :, before], values[:, :, before], scaling)


class DualChunkAttention(Method):
    """Attention with positions counted inside chunks of the text, for inference."""

    family = "approximate"
    exact_attention = False
    training = "none"

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
        if scheme.chunk >= geometry.trained_context:
            raise SpecError(
                "dca.chunk",
                scheme.chunk,
                f"at most {geometry.trained_context - 1}, the largest distance in the model's"
                " training",
                "write a smaller chunk, or remove the key",
            )
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
