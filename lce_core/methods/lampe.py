"""LaMPE: true distances nearby and at the far end, mapped positions between them.

Design: the base model's own frequencies. In a request of L tokens, distances below the window w
are true. Farther tokens p are at m(p) = floor(p M / (L - 1)) with M = A / (1 + exp(-(a L + b))),
shifted so that distances continue at w - 1. The largest distances, at least L - t, grow by 1 per
token again and continue the mapped ones; t is the end of the group of tokens that share the
position m(r). Queries and keys are multiplied by 0.1 ln 2 + 1. Requests below 2 w tokens keep true
distances.
"""

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from pydantic import Field

from lce_core.attention import AttentionScheme
from lce_core.attention.schemes import Far, FullCausal, Line, NearAndFar
from lce_core.evidence import LLAMA2_7B, value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.stated import temperature

FACTOR = temperature(2)
WINDOW, FIRST = 512, 200
"""w and r of the reference, for all its models."""


class Fit(NamedTuple):
    """The reference's map of lengths in tokens for one model: a, b and A."""

    trained: int
    slope: float
    offset: float
    limit: float
    short: int
    """Length below which M is 1,536; 0 for none."""


FITS = (
    Fit(4096, 8.673006440952035e-05, -0.648012322406978, 2489.1055522143557, 8192),
    Fit(8192, 0.00010493097327094324, -2.466638011138158, 6204.409324666837, 8192),
    Fit(131072, 4.505261149632588e-05, -2.788576860718702, 82358.52413056031, 0),
)
"""`remap_uselen` of the reference: Llama-2, Llama-3, Llama-3.1."""
SHORT = 1536


@dataclass(frozen=True)
class Mapped(NearAndFar):
    """True distances within a window; mapped ones beyond it; the largest grow by 1 per token."""

    length: int
    """Length of the request in tokens, at least 2."""
    positions: int
    """Position to which the last token is mapped, M."""
    outer: int
    """Smallest distance in the text from which on distances grow by 1 per token again."""

    @property
    def far(self) -> Far:
        token = Line((self.length - 1,), times=self.positions)
        shift = self.window - 1 - token.at(self.window)[0]
        last = self.outer - 1
        # Shifted keys, because queries at their true positions and the window's keys are cached.
        surplus = last - token.at(last)[0] - shift
        farthest = Far(key=Line(shift=(surplus,)))
        return Far(
            Line(token.group, (shift,), times=token.times), token, beyond=(self.outer, farthest)
        )


class Lampe(ApproximateMethod):
    """Attention whose middle distances are mapped to a range that grows with the request.

    Defaults are those of the published model with the nearest trained context. If the trained
    context differs, lengths and positions are scaled by the ratio.
    """

    slope: float | None = Field(default=None, ge=0)
    """Slope a of the sigmoid, for each token."""
    offset: float | None = None
    """Offset b of the sigmoid."""
    limit: float | None = Field(default=None, gt=0)
    """Limit A of the sigmoid, in positions."""
    window: int | None = Field(default=None, ge=1)
    """Number of recent tokens at their true distance."""
    first: int | None = Field(default=None, ge=0)
    """Number of tokens at the far end, rounded up to a group, whose distances grow by 1 per
    token."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq(), FACTOR)

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> AttentionScheme:
        fit = min(FITS, key=lambda fit: abs(math.log(geometry.trained_context / fit.trained)))
        scale = geometry.trained_context / fit.trained
        window = max(1, round(WINDOW * scale)) if self.window is None else self.window
        first = round(FIRST * scale) if self.first is None else self.first
        length = lengths.request
        if length < 2 * window:
            return FullCausal()
        positions = self._positions(fit, scale, length)
        # The last token at the position of token `first` is t.
        group = first * positions // (length - 1)
        end = ((group + 1) * (length - 1) - 1) // positions
        return Mapped(
            window=window,
            length=length,
            positions=positions,
            outer=max(window + 1, length - end),
        )

    def _positions(self, fit: Fit, scale: float, length: int) -> int:
        given = (self.slope, self.offset, self.limit)
        if given == (None, None, None) and length < fit.short * scale:
            return max(1, int(SHORT * scale))
        published = (fit.slope / scale, fit.offset, fit.limit * scale)
        slope, offset, limit = (
            default if own is None else own for own, default in zip(given, published, strict=True)
        )
        # The sigmoid as tanh, which does not overflow.
        return max(1, int(limit / 2 * (1 + math.tanh((slope * length + offset) / 2))))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        for key in ("window", "first", "limit"):
            self.check_trained(key, getattr(self, key) or 0, geometry)

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return True


METHOD = Lampe
SOURCE = Source(
    paper="arXiv:2508.02308",
    place="scaled sigmoid and multi-grained attention; all numbers from the reference",
    reference="github.com/scar-on/LaMPE@34331cf530785fdbc0526705c7c4f795f8087787",
    differs="L counts prompt and answer; the reference's is the prompt's, and all queries of the"
    " answer share the last mapped position. The tokens at distances w and L - t count once, as in"
    " the reference's decoding; its prefill counts each twice. m(p) is exact; the reference rounds"
    " to float32. For trained contexts other than the published ones, the reference has no numbers",
)
_ORIGIN = "the reference's map and biases, run on 2026-11-28"
EVIDENCE = (
    value("attention_factor", 1.0693147, "0.1 ln 2 + 1, by hand"),
    value(
        "distance",
        (511, 511, 1838, 2702, 2703, 2703, 2906, None),
        f"{_ORIGIN}: M = 2239, t = 204",
        positions=(
            *((511, 0), (512, 0), (20000, 77), (32563, 0), (32564, 0), (32565, 1), (32767, 0)),
            (5, 6),
        ),
    ),
    value(
        "distance",
        (511, 511, 1041, 1779, 1780, 1780, 1981),
        f"{_ORIGIN}: M = 1536, t = 202",
        positions=((511, 0), (512, 0), (2000, 77), (3893, 0), (3894, 0), (3895, 1), (4095, 0)),
        request=4096,
    ),
    value(
        "distance",
        (511, 2327, 6574, 6575, 6777),
        f"{_ORIGIN}: M = 6129, t = 203",
        positions=((512, 0), (20000, 77), (65332, 0), (65333, 0), (65535, 0)),
        geometry=replace(LLAMA2_7B, trained_context=8192),
        request=65536,
    ),
    value(
        "distance",
        (511, 6609, 82636, 82637, 82836),
        f"{_ORIGIN}: M = 82348, t = 200",
        positions=((512, 0), (20000, 77), (261943, 0), (261944, 0), (262143, 0)),
        geometry=replace(LLAMA2_7B, trained_context=131072),
        request=262144,
    ),
    value("reach", None, "the method limits no length"),
)
EXAMPLES: Examples = ({}, {"window": 4, "first": 3, "slope": 0.05, "offset": -1.0, "limit": 12.0})
VERSION = 1
