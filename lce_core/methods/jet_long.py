"""Jet-Long: true distances to neighbours, and farther positions grouped, more in longer requests.

Design: the base model's own frequencies. In a request of L tokens, with a trained context of C, the
positions of query and key are each divided by G = ceil(L / C) and rounded down beyond the window.
So nothing changes up to C tokens, and no distance reaches C at any length. Unlike in Self-Extend,
distances do not continue at the window's edge: they fall to about 1 / G there.
"""

from dataclasses import dataclass

from pydantic import Field

from lce_core.attention.schemes import Far, Line, NearAndFar
from lce_core.evidence import value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry


@dataclass(frozen=True)
class Grouped(NearAndFar):
    """True distances within `window`; farther tokens share positions in groups."""

    group: int
    """Number of tokens that share one position beyond the window."""

    @property
    def far(self) -> Far:
        return Far(Line((self.group,)), Line((self.group,)))


class JetLong(ApproximateMethod):
    """Attention with coarser positions beyond a window; the longer the request, the coarser."""

    window: int | None = Field(default=None, ge=1)
    """Largest true distance in tokens; None means the smaller of 2048 and 1/16 of the trained
    context."""

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> Grouped:
        trained = geometry.trained_context
        window = min(2048, trained // 16) if self.window is None else self.window
        return Grouped(window=window + 1, group=-(-lengths.request // trained))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.check_trained("window", self.window or 0, geometry)

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return True


METHOD = JetLong
SOURCE = Source(
    paper="arXiv:2607.07740",
    place="position grouping; window 2048 at a trained context of 32768",
    reference="github.com/jet-ai-projects/Jet-Long@3262969d60640ea27ce280cfcc95ed98bc4c218a",
    differs="G follows the length of prompt and answer; the reference's follows the tokens so far."
    " Key sets are disjoint; the reference's prefill subtracts the window from all keys and ignores"
    " far keys whose share is below 1e-6. The `freq` form, which gives far keys YaRN's frequencies,"
    " is missing",
)
EVIDENCE = (
    value(
        "distance",
        (0, 256, 32, 32, 4095, None),
        "32,768 tokens, 8 times the trained context, window 256, by hand",
        positions=((9, 9), (256, 0), (257, 0), (32767, 32510), (32767, 0), (5, 6)),
    ),
    value(
        "distance",
        (3, 2, 2048),
        "4,097 tokens and window 3: groups of two, by hand",
        positions=((10, 7), (10, 6), (4096, 0)),
        window=3,
        request=4097,
    ),
    value("reach", None, "no distance reaches the trained context"),
)
EXAMPLES: Examples = ({}, {"window": 5})
VERSION = 1
