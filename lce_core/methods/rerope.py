"""ReRoPE: true distances within a window; beyond it a constant or slowly growing distance.

Design: the base model's own frequencies. The query at position i sees every earlier token j, at
distance min(i - j, window). With `leak` (Leaky ReRoPE) the distance beyond the window is window +
(i - j - window) / leak. It keeps the order of far tokens, and stays below the trained context C in
requests of up to (C - 1 - window) * leak + window + 1 tokens.
"""

from pydantic import Field

from lce_core.attention.schemes import Rectified
from lce_core.evidence import PHI2, value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry


class ReRope(ApproximateMethod):
    """Attention that limits large distances, for inference."""

    window: int | None = Field(default=None, ge=1)
    """Number of recent tokens at their true distance; None means the smaller of 512 and half the
    trained context."""
    leak: int | None = Field(default=None, ge=1)
    """Number of tokens beyond the window over which the distance grows by 1; None keeps it
    constant."""

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> Rectified:
        nearby = max(1, min(512, geometry.trained_context // 2))
        return Rectified(self.window or nearby, None if self.leak is None else (self.leak,))

    def reach(self, geometry: RopeGeometry, lengths: ContextLengths) -> int | None:
        if self.leak is None:
            return None  # distances stop growing at the window
        window = self.attention(geometry, lengths).window
        return (geometry.trained_context - 1 - window) * self.leak + window + 1

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.check_trained("window", self.attention(geometry, lengths).window, geometry)


METHOD = ReRope
SOURCE = Source(
    paper="https://kexue.fm/archives/9708",
    place="ReRoPE and Leaky ReRoPE; window 512 from the reference",
    reference="github.com/bojone/rerope@2cbd019fcafec5ebe2bd9a2aec139c13ee8a67ae",
    differs="queries are not scaled, so that methods differ only in distances; beyond the trained"
    " context the reference multiplies queries by the logarithm of their position",
)
EVIDENCE = (
    value(
        "distance",
        (0, 511, 512, 512, None),
        "min(i - j, 512), by hand",
        positions=((9, 9), (2000, 1489), (2000, 1488), (60000, 0), (5, 6)),
    ),
    value(
        "distance",
        (511, 512, 512.0625, 4095),
        "512 + (i - j - 512) / 16, the reference's Leaky ReRoPE, by hand",
        positions=((511, 0), (512, 0), (513, 0), (57840, 0)),
        leak=16,
    ),
    value("reach", None, "the distance never grows"),
    value("reach", 57841, "distances up to 4095 counted key by key", leak=16),
    value("reach", 49633, "distances up to 2047 counted key by key", geometry=PHI2, leak=32),
)
EXAMPLES: Examples = ({"leak": 8}, {})
VERSION = 1
