"""Sizes that attention takes from the model: the authors' settings for a context of 4096 tokens."""

import pytest

from lce_core.attention.schemes import CacheSinks, GroupedNeighbour, LambdaShaped, Rectified
from lce_core.methods import METHODS
from lce_core.methods.dca import DualChunk
from lce_core.rope import ContextLengths, RopeGeometry


@pytest.mark.parametrize(
    ("name", "parameters", "context", "expected"),
    [
        # LCEG, appendix 9.2: a window of 4096 tokens and 10 global ones.
        ("lm_infinite", {}, 4096, LambdaShaped(window=4096, num_global=10)),
        # Sinks and window are the cache, which has the trained context.
        ("streaming_llm", {}, 4096, CacheSinks(window=4092, num_sinks=4)),
        ("streaming_llm", {"num_sinks": 8, "window": 50}, 128, CacheSinks(50, 8)),
        ("dca", {}, 4096, DualChunk(chunk=3072, window=256)),
        ("self_extend", {}, 128, GroupedNeighbour(64, 16)),
        ("self_extend", {}, 4096, GroupedNeighbour(1024, 64)),
        ("self_extend", {}, 2, GroupedNeighbour(1, 1)),
        ("rerope", {}, 4096, Rectified(window=512)),
        ("rerope", {"leak": 16}, 128, Rectified(window=64, leak=16)),
    ],
)
def test_sizes_follow_from_the_trained_context(name, parameters, context, expected):
    geometry = RopeGeometry(32, 32, 2, 2, 1e4, context)
    lengths = ContextLengths(context, 8 * context, 8 * context)
    method = METHODS.parse({"name": name, **parameters}, "test")
    method.check(geometry, lengths)
    assert method.attention(geometry, lengths) == expected
