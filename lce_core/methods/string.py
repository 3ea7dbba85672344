"""STRING: far distances shifted down, onto those that occur often in training.

Design: the base model's own frequencies. In a request of n tokens, distances below S = shift * n
stay, and a distance d >= S becomes d - S + window, so the largest distances never occur. Distances
stay below the trained context C in requests of up to about (C - window) / (1 - shift) tokens.
Longer requests are computed too, as without a method. Queries and keys are multiplied by
0.1 ln 2 + 1.
"""

from dataclasses import dataclass

from pydantic import Field

from lce_core.attention.schemes import Far, Line, NearAndFar
from lce_core.evidence import value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.stated import temperature

FACTOR = temperature(2)


@dataclass(frozen=True)
class Shifted(NearAndFar):
    """True distances below `window`; larger distances are shifted down."""

    shifted: int
    """Distance of the token that is `window` tokens before the query; at most `window`."""

    @property
    def far(self) -> Far:
        return Far(Line(shift=(self.shifted - self.window,)))


class String(ApproximateMethod):
    """Attention whose far distances are shifted down, for inference."""

    shift: float = Field(default=0.33, gt=0, lt=1)
    """Smallest distance that is shifted, as a fraction of the request's length."""
    window: int | None = Field(default=None, ge=0)
    """Smallest distance after the shift, in tokens; None means the smaller of 128 and 1/32 of the
    trained context. In a request so short that `shift` times its length is at most this number,
    nothing is shifted."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq(), FACTOR)

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> Shifted:
        window = max(1, min(128, geometry.trained_context // 32))
        window = window if self.window is None else self.window
        near = max(1, int(self.shift * lengths.request))
        return Shifted(window=near, shifted=min(window, near))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.check_trained("window", self.window or 0, geometry)

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return True


METHOD = String
SOURCE = Source(
    paper="arXiv:2410.18745",
    place="section 4; shift 0.33, window 128 and the factor from the reference",
    reference="github.com/HKUNLP/STRING@216cc2f04cee147e8c3cfaa15723b182ecbe321e",
    differs="the token at distance S counts once, at its shifted distance, as in the reference's"
    " decoding. The reference's prefill counts it twice, at distances S and W. S follows"
    " each request's length; the reference takes it from the longest length of a run. Nothing is"
    " shifted in requests with S <= W, where the reference would increase distances",
)
EVIDENCE = (
    value("attention_factor", 1.0693147, "0.1 ln 2 + 1, by hand"),
    value(
        "distance",
        (2702, 128, 129, 5616, None),
        "8,192 tokens: S = int(2703.36) = 2703, W = 128, by hand",
        positions=((8000, 5298), (8000, 5297), (8000, 5296), (8191, 0), (5, 6)),
        request=8192,
    ),
    value(
        "distance",
        (32767, 32896, 128),
        "131,072 tokens, shift 0.5 and window 128: S = 65536, by hand",
        positions=((32767, 0), (98304, 0), (65536, 0)),
        shift=0.5,
        window=128,
        request=131072,
    ),
    value("reach", None, "the method limits no length"),
)
EXAMPLES: Examples = ({}, {"shift": 0.25, "window": 2})
VERSION = 1
