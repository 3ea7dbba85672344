"""DPE: far keys are scored at positions that are coarser for some frequencies than for others.

Design: the base model's own frequencies. Keys within a window of recent tokens are scored at their
true distance. For farther keys, the positions of query and key are divided by a scale and rounded
down, as in Self-Extend, but every group of frequency pairs has a scale of its own. The published
scales were found for one model at a time, by retrieval tests of each group.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag

from lce_core.attention.schemes import Far, Line, NearAndFar
from lce_core.errors import SpecError
from lce_core.evidence import LLAMA2_7B, value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry

PUBLISHED = {
    "llama3_8b_readme": (4, 4, 2, 16, 32, 32, 16, 128),
    "llama3_8b_config": (2, 8, 2, 8, 32, 32, 32, 4),
    "llama31_8b": (2, 32, 32, 2, 2, 2, 2, 1),
    "mistral_7b": (4, 16, 2, 16, 32, 16, 16, 2),
    "qwen25_7b": (2, 16, 8, 8, 32, 8, 2, 4),
}
"""Scales of the reference for the instruction-tuned models, eight groups of eight pairs each, that
of the fastest frequencies first. For Llama-3-8B its README and its configuration disagree; the
published RULER predictions were made with the scales of the README."""

Scales = Annotated[
    Annotated[
        Literal["llama3_8b_readme", "llama3_8b_config", "llama31_8b", "mistral_7b", "qwen25_7b"],
        Tag("model"),
    ]
    | Annotated[tuple[Annotated[int, Field(ge=1)], ...], Tag("groups"), Field(min_length=1)],
    Discriminator(lambda given: "groups" if isinstance(given, list | tuple) else "model"),
]


@dataclass(frozen=True)
class DimensionWise(NearAndFar):
    """True distances within a window; beyond it, a distance of its own for each frequency pair."""

    scales: tuple[int, ...]
    """Number of tokens that share a position beyond the window, for each frequency pair."""

    @property
    def far(self) -> Far:
        shifts = tuple(self.window - self.window // scale for scale in self.scales)
        return Far(Line(self.scales, shifts), Line(self.scales, (0,) * len(self.scales)))


class DimensionWisePositions(ApproximateMethod):
    """Attention with coarser positions, by frequency, beyond a window of recent tokens."""

    scales: Scales = "llama3_8b_readme"
    """Number of tokens that share a position beyond the window, for each group of frequency pairs,
    that of the fastest frequencies first; or the name of a published list. The pairs are divided
    evenly among the groups."""
    window: int | None = Field(default=None, ge=1)
    """Number of recent tokens at their true distance; None means the smaller of 1024 and half the
    trained context."""

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> DimensionWise:
        scales = PUBLISHED[self.scales] if isinstance(self.scales, str) else self.scales
        pairs, groups = geometry.num_pairs, len(scales)
        nearby = max(1, min(1024, geometry.trained_context // 2))
        return DimensionWise(
            window=self.window or nearby,
            scales=tuple(scales[pair * groups // pairs] for pair in range(pairs)),
        )

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        scheme = self.attention(geometry, lengths)
        self.check_trained("window", scheme.window, geometry)
        if not isinstance(self.scales, str) and len(self.scales) > geometry.num_pairs:
            raise SpecError(
                "dpe.scales",
                f"{len(self.scales)} scales",
                f"at most one for each of the model's {geometry.num_pairs} frequency pairs",
                "list fewer scales",
            )


METHOD = DimensionWisePositions
SOURCE = Source(
    paper="arXiv:2504.18857",
    place="section 3; scales and window of 1,024 from the reference",
    reference="github.com/LuLuLuyi/DPE@46b85decdedcb6e86b9c75f1082968d54fc92efc",
    differs="every pair of a group is scaled; the reference can also leave out the pairs of each"
    " head that contribute least to attention, which a sample of texts must select. If a scale does"
    " not divide the window, distances are those of the reference's decoding; its prefill shifts"
    " queries by a fraction. A list for eight groups applies to a model with fewer pairs in"
    " proportion",
)
ONE_PAIR_EACH = replace(LLAMA2_7B, head_dim=16, rotary_dim=16)
"""Geometry of a model with one frequency pair for each of eight groups."""
EVIDENCE = (
    value(
        "distance",
        (
            (1768, 1768, 2512, 1210, 1117, 1117, 1210, 1047),
            (1024, 1024, 1024, 1024, 1024, 1024, 1024, 1024),
        ),
        "window 1024 and the README's scales: 4000 // s + 1024 - 1024 // s, by hand",
        positions=((4000, 0), (2048, 1024)),
        geometry=ONE_PAIR_EACH,
    ),
    value(
        "distance",
        ((2512, 1396, 2512, 1396, 1117, 1117, 1117, 1768),),
        "window 1024 and the configuration's scales, by hand",
        positions=((4000, 0),),
        geometry=ONE_PAIR_EACH,
        scales="llama3_8b_config",
    ),
    value(
        "distance",
        (0, 1023, None),
        "within the window, by hand",
        positions=((9, 9), (2000, 977), (5, 6)),
    ),
    value("reach", None, "the method limits no length"),
)
EXAMPLES: Examples = (
    {},
    {"scales": "llama3_8b_config"},
    {"scales": [2, 4], "window": 5},
    {"scales": [3, 1], "window": 8},
)
VERSION = 1
