"""StreamingLLM: attention sinks and a window, with positions counted inside the cache.

Design: the base model's own frequencies. Attention sees the first `num_sinks` (S) tokens and the
last `window` (W) tokens as if they were the whole text: sinks at positions 0..S - 1, directly
followed by the window. The tokens between are invisible. No distance exceeds S + W - 1, and the
cost is linear at any length.
"""

from pydantic import Field

from lce_core.attention.schemes import CacheSinks
from lce_core.errors import SpecError
from lce_core.evidence import value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry


class StreamingLlm(ApproximateMethod):
    """Attention to the first tokens (sinks) and to a window of recent tokens, for inference."""

    window: int | None = Field(default=None, ge=1)
    """Number of recent tokens that each token sees, itself included; None means the trained context
    minus the sinks."""
    num_sinks: int = Field(default=4, ge=1)
    """Number of tokens at the start of the text that every token sees."""

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> CacheSinks:
        left = max(1, geometry.trained_context - self.num_sinks)
        window = left if self.window is None else self.window
        return CacheSinks(window=window, num_sinks=self.num_sinks)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        scheme = self.attention(geometry, lengths)
        cache = scheme.window + scheme.num_sinks
        if cache > geometry.trained_context:
            raise SpecError(
                "streaming_llm.window",
                f"{scheme.window}, which with {scheme.num_sinks} sinks makes {cache} tokens",
                f"at most {geometry.trained_context} tokens, the model's trained context",
                "write a smaller window or fewer sinks, or remove the key window",
            )


METHOD = StreamingLlm
SOURCE = Source(
    paper="arXiv:2309.17453",
    place="section 3.2; 4 sinks as there, window: the rest of the trained context",
    reference="github.com/mit-han-lab/streaming-llm@d729b3ffc947caca63fc0f7644b7468ca2d50881",
    differs="the window includes the query's own token, and slides for each token, also within a"
    " prompt. The reference drops tokens only between calls, so there a token's view depends on how"
    " the text is cut into calls",
)
EVIDENCE = (
    value(
        "distance",
        (0, 4091, None, 4095, 4092, None, None),
        "index in a cache of 4 + 4092 tokens, counted by hand",
        positions=(
            (5000, 5000),
            (5000, 909),
            (5000, 908),
            (60000, 0),
            (5000, 3),
            (5000, 4),
            (3, 4),
        ),
    ),
    value(
        "distance",
        (5, 6, 7, 6, 5, 7),
        "index in a cache of 3 + 5 tokens, counted by hand",
        positions=((5, 0), (6, 0), (7, 0), (7, 1), (7, 2), (8, 0)),
        window=5,
        num_sinks=3,
    ),
    value("reach", None, "the method limits no length"),
)
EXAMPLES: Examples = ({}, {"window": 8, "num_sinks": 3})
VERSION = 1
