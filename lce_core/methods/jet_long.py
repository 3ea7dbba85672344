"""Jet-Long: true distances to neighbours, and compressed ones beyond, more in longer requests.

Design: the base model's own frequencies. L is the request's length, C the trained context and w the
window. Up to C tokens nothing changes.

  group: beyond the window, the positions of query and key are each divided by G = ceil(L / C) and
    rounded down. No distance reaches C at any length. Unlike in Self-Extend, distances do not
    continue at the window's edge: they fall to about 1 / G there.
  freq: a distance d beyond the window becomes w + (d - w) r. r is the factor of a pair's frequency
    in YaRN with the scale s = (L - w) / (C - w), so the distances of slow pairs stay below C.
    Scores, also those within the window, are multiplied by 0.1 ln s + 1.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import Field

from lce_core.attention.schemes import Far, Line, NearAndFar, Rectified
from lce_core.evidence import LLAMA2_7B, value
from lce_core.methods import ApproximateMethod
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.stated import index_ramp, temperature


@dataclass(frozen=True)
class Grouped(NearAndFar):
    """True distances within `window`; farther tokens share positions in groups."""

    group: int
    """Number of tokens that share one position beyond the window."""

    @property
    def far(self) -> Far:
        return Far(Line((self.group,)), Line((self.group,)))


class JetLong(ApproximateMethod):
    """Attention with smaller distances beyond a window; the longer the request, the smaller."""

    form: Literal["group", "freq"] = "group"
    """"group": farther tokens share positions in groups. "freq": for each token beyond the window,
    a pair's distance grows by the factor with which YaRN multiplies the pair's frequency."""
    window: int | None = Field(default=None, ge=1)
    """Largest true distance in tokens; None means the smaller of 2048 and 1/16 of the trained
    context."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        scale = self._scale(geometry, lengths) if self.form == "freq" else 1.0
        return RopeTable(geometry.inv_freq(), math.sqrt(temperature(scale)))

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> Grouped | Rectified:
        window = self._window(geometry)
        if self.form == "group":
            return Grouped(window + 1, group=-(-lengths.request // geometry.trained_context))
        slow = index_ramp(geometry, beta_fast=32, beta_slow=1, truncate=True)
        factors = 1 - slow * (1 - 1 / self._scale(geometry, lengths))
        return Rectified(window, leak=tuple((1 / factors).tolist()))

    def _window(self, geometry: RopeGeometry) -> int:
        default = max(1, min(2048, geometry.trained_context // 16))
        return default if self.window is None else self.window

    def _scale(self, geometry: RopeGeometry, lengths: ContextLengths) -> float:
        window = self._window(geometry)
        return max(1.0, (lengths.request - window) / (geometry.trained_context - window))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.check_trained("window", self.window or 0, geometry)

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return True


METHOD = JetLong
SOURCE = Source(
    paper="arXiv:2607.07740",
    place="position grouping and `freq`; window 2048 at a trained context of 32768",
    reference="github.com/jet-ai-projects/Jet-Long@3262969d60640ea27ce280cfcc95ed98bc4c218a",
    differs="G and s follow the length of prompt and answer; the reference's follow the tokens so"
    " far. Key sets are disjoint; the reference's prefill subtracts the window from all keys and"
    " ignores far keys whose share is below 1e-6. `freq` clamps the end of its ramp to a head's"
    " elements, as YaRN's code does; the reference clamps it to the pairs",
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
    value(
        "distance",
        (
            255,
            (257, 257, 257, 256.78125, 256.5625, 256.34375, 256.125, 256.125),
            (30975, 30975, 30975, 24255.21875, 17535.4375, 10815.65625, 4095.875, 4095.875),
            None,
        ),
        "s = 30720 / 3840 = 8, ramp 0, 0, 0, 1/4, 1/2, 3/4, 1, 1, by hand",
        positions=((255, 0), (257, 0), (30975, 0), (5, 6)),
        geometry=replace(LLAMA2_7B, head_dim=16, rotary_dim=16),
        request=30976,
        form="freq",
    ),
    value(
        "attention_factor",
        1.0990651,
        "the root of 0.1 ln 8 + 1, by hand",
        request=30976,
        form="freq",
    ),
    value("attention_factor", 1.0, "within the trained context", request=4096, form="freq"),
)
EXAMPLES: Examples = ({}, {"window": 5}, {"form": "freq"}, {"form": "freq", "window": 5})
VERSION = 1
