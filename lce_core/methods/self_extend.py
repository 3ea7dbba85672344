"""Self-Extend: true distances to neighbours, grouped positions for everything further away.

Design: the base model's own frequencies. Beyond the window, the positions of query and key are each
divided by `group` and rounded down, then shifted so that distances continue at the window's edge.
"""

from dataclasses import replace

from pydantic import Field

from lce_core.attention.schemes import GroupedNeighbour
from lce_core.errors import SpecError
from lce_core.evidence import LLAMA2_7B, PHI2, value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry


class SelfExtend(ApproximateMethod):
    """Attention with coarser positions beyond a window of recent tokens, for inference."""

    window: int | None = Field(default=None, ge=1)
    """Number of recent tokens at their true distance, a multiple of group; None means the smaller
    of 1024 and half the trained context, rounded down to such a multiple."""
    group: int | None = Field(default=None, ge=1)
    """Number of tokens that share a position beyond the window; None means the smaller of 64 and
    1/8 of the trained context."""

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> GroupedNeighbour:
        trained = geometry.trained_context
        group = max(1, min(64, trained // 8)) if self.group is None else self.group
        nearby = max(group, min(1024, trained // 2) // group * group)
        return GroupedNeighbour(window=self.window or nearby, group=group)

    def reach(self, geometry: RopeGeometry, lengths: ContextLengths) -> int:
        scheme = self.attention(geometry, lengths)
        return (geometry.trained_context - scheme.window) * scheme.group + scheme.window

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        scheme = self.attention(geometry, lengths)
        if scheme.window % scheme.group:
            raise SpecError(
                "self_extend.window",
                scheme.window,
                f"a multiple of the group, {scheme.group}",
                f"write {-(-scheme.window // scheme.group) * scheme.group}",
            )
        self.check_trained("window", scheme.window, geometry)


METHOD = SelfExtend
SOURCE = Source(
    paper="arXiv:2401.01325",
    place="LCEG section 3.3; window 1024 and group 64 from its appendix 9.2",
    reference="https://github.com/datamllab/LongLM/tree/cdbbb06",
    differs="floor(q / G) - floor(k / G) as in the reference; LCEG's equation 15 prints the"
    " floor of the difference, which its code does not compute",
)
EVIDENCE = (
    value(
        "reach",
        10,
        "figure 3 of the paper: a sequence of 10 tokens and a model of 7",
        geometry=replace(LLAMA2_7B, trained_context=7),
        window=4,
        group=2,
    ),
    value("reach", 197632, "distances below 4096 counted key by key, LCEG's settings for Llama-2"),
    value(
        "reach",
        66560,
        "distances below 2048 counted key by key, LCEG's settings for Phi-2",
        geometry=PHI2,
    ),
    value(
        "reach",
        99328,
        "distances counted key by key: out of range at 131072, where HARPE prints 0",
        group=32,
        window=1024,
    ),
    value(
        "distance",
        (0, 1023, 1024, 2031, None),
        "definition with window 1024 and group 64, by hand",
        positions=((9, 9), (2000, 977), (2048, 1024), (65535, 0), (5, 6)),
    ),
)
EXAMPLES: Examples = ({}, {"window": 8, "group": 4})
VERSION = 1
