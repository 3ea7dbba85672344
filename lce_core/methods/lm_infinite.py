"""LM-Infinite: a window of recent tokens plus the first tokens, at bounded distances.

Design: the base model's own frequencies. Attention sees the last `window` tokens at their true
distance, and the first `num_global` tokens, which are at distance `window` once they have left the
window. The tokens between are invisible. The cost is linear, and any length is supported.
"""

from pydantic import Field

from lce_core.attention.schemes import LambdaShaped
from lce_core.errors import SpecError
from lce_core.evidence import value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry


class LmInfinite(ApproximateMethod):
    """Attention to the first tokens and to a window of recent tokens, for inference."""

    window: int | None = Field(default=None, ge=1)
    """Number of recent tokens that each token sees, itself included; also the largest distance.
    None means the trained context."""
    num_global: int = Field(default=10, ge=1)
    """Number of tokens at the start of the text that every token sees."""

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> LambdaShaped:
        window = geometry.trained_context if self.window is None else self.window
        return LambdaShaped(window=window, num_global=self.num_global)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        if self.window is not None and self.window > geometry.trained_context:
            raise SpecError(
                "lm_infinite.window",
                self.window,
                f"at most the model's trained context of {geometry.trained_context} tokens",
                "write a smaller window, or remove the key",
            )


METHOD = LmInfinite
SOURCE = Source(
    paper="arXiv:2308.16137",
    place="LCEG section 3.3; window 4096 and 10 global tokens from its appendix 9.2",
    reference="https://github.com/Glaciohound/LM-Infinite/tree/a0ce64c",
    differs="no top-k tokens from the middle, as in LCEG. A prompt that is processed in chunks has"
    " the same mask as in one pass, as in the reference's cached mode; in LCEG's copy"
    " (LCEG@2ce672d) queries of all chunks after the first see later keys of their chunk",
)
EVIDENCE = (
    value(
        "distance",
        (0, 4095, None, 4096, 4096, None, None),
        "definition with window 4096 and 10 global tokens, by hand",
        positions=(
            (5000, 5000),
            (5000, 905),
            (5000, 904),
            (5000, 9),
            (60000, 0),
            (5000, 10),
            (3, 4),
        ),
    ),
    value("reach", None, "the method limits no length"),
)
EXAMPLES: Examples = ({}, {"window": 8, "num_global": 3})
VERSION = 1
