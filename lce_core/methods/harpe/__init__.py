"""HARPE: another RoPE base for each attention head, so that heads attend at different distances.

Design: bases from 1e6 to 5e6, the same in all layers. The search chooses bases so that the
attention waveforms of the heads complement each other (`lce_core.methods.harpe.search`; it gives
the paper's 32 bases for 32 heads of width 128). Query heads that share a key-value head have the
same base, because the shared key is rotated once.
"""

from dataclasses import replace
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Discriminator, Field, Tag, model_validator

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, frequencies
from lce_core.methods import Base, Method
from lce_core.methods.harpe.search import PUBLISHED, SearchSettings, search_bases
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

Bases = Annotated[
    Annotated[Literal["searched", "uniform_ascending", "uniform_descending"], Tag("rule")]
    | Annotated[tuple[Base, ...], Tag("heads")],
    # The discriminator decides between rule and list, so that a mistake yields one error message.
    Discriminator(lambda given: "heads" if isinstance(given, list | tuple) else "rule"),
]


class Harpe(Method):
    """A RoPE base per attention head."""

    family = "base"

    bases: Bases = "searched"
    """"searched": the search of `lce_core.methods.harpe.search` chooses the bases.
    "uniform_ascending" and "uniform_descending": the bases are equally spaced from 1e6 to 5e6, or
    from 5e6 to 1e6. A list gives one base per query head; query heads that share a key-value head
    must have equal bases."""
    stride: int | None = Field(default=None, ge=1)
    """Difference between successive candidate bases of the search; None means 30000, the value that
    reproduces the paper's table 2."""

    @model_validator(mode="after")
    def _stride_has_effect(self) -> Self:
        if self.stride is not None and self.bases != "searched":
            raise SpecError(
                "stride",
                f"stride {self.stride} together with "
                + (f"bases: {self.bases}" if isinstance(self.bases, str) else "a list of bases"),
                "a stride only together with `bases: searched`",
                "remove stride, or write `bases: searched`",
            )
        return self

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        bases = self._bases(geometry)
        return RopeTable(np.stack([geometry.inv_freq(float(base)) for base in bases]))

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        if self.bases == "searched":
            self._settings().check_count(geometry.num_kv_heads)
        if isinstance(self.bases, str):
            return
        if len(self.bases) != geometry.num_heads:
            raise SpecError(
                "harpe.bases",
                f"{len(self.bases)} bases",
                f"one base for each of the {geometry.num_heads} query heads",
                "write as many bases as heads, or `bases: searched`",
            )
        group = geometry.num_heads // geometry.num_kv_heads
        for start in range(0, geometry.num_heads, group):
            bases = self.bases[start : start + group]
            if len(set(bases)) > 1:
                raise SpecError(
                    "harpe.bases",
                    f"{list(bases)} for heads {start} to {start + group - 1}",
                    f"the same base for the {group} query heads that share a key-value head",
                    f"write each base {group} times in a row",
                )

    def _bases(self, geometry: RopeGeometry) -> list[float]:
        if not isinstance(self.bases, str):
            return list(self.bases)
        distinct = geometry.num_kv_heads
        if self.bases == "searched":
            found = sorted(search_bases(geometry.rotary_dim, distinct, self._settings()))
            own = np.array(found, dtype=np.float64)
        else:
            own = np.linspace(PUBLISHED.lowest, PUBLISHED.highest, distinct)
        if self.bases == "uniform_descending":
            own = own[::-1]
        return [float(base) for base in np.repeat(own, geometry.num_heads // distinct)]

    def _settings(self) -> SearchSettings:
        return PUBLISHED if self.stride is None else replace(PUBLISHED, stride=self.stride)


METHOD = Harpe
SOURCE = Source(
    paper="arXiv:2412.07171",
    place="section 3.2, tables 2 and 6",
    reference="https://github.com/AlibabaResearch/DAMO-ConvAI/tree/ef1f2e1",
    differs="the search is the reference's, which gives table 2; the paper's algorithm 1 does not."
    " The search always covers distances up to 131072 tokens, independent of the study's target",
)
EVIDENCE = (
    frequencies(
        (1.0, 8.058422e-1, 3.162278e-2, 1.240938e-3, 1.0e-3, 3.162278e-5, 1.240938e-6),
        origin=f"{EXACT}; head 1 of table 2, base 1.00e6",
        head=0,
    ),
    frequencies(
        (1.0, 7.870159e-1, 2.166387e-2, 5.963326e-4, 4.693233e-4, 1.016736e-5, 2.798728e-7),
        origin=f"{EXACT}; head 32 of table 2, base 4.54e6",
        head=31,
    ),
    frequencies(
        (1.0, 9.41123948e-4),
        origin=f"{EXACT}; second of 32 heads from 1e6 to 5e6, equation 9",
        pairs=(0, 32),
        head=1,
        bases="uniform_ascending",
    ),
    frequencies(
        (1.0, 7.858300e-1, 2.114743e-2, 5.690971e-4, 4.472136e-4, 9.457416e-6, 2.545080e-7),
        origin=f"{EXACT}; base 5e6 for the first head",
        head=0,
        bases="uniform_descending",
    ),
)
EXAMPLES: Examples = ({"bases": [3e6, 1e6, 2e6, 5e6]}, {"stride": 60000}, {})
VERSION = 2
