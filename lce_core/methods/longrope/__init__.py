"""LongRoPE: every frequency is divided by its own factor, which a search finds or the study states.

Design: the study states the factors, such as those of published weights, or a step of its own
searches for them (`lce_core.methods.longrope.search`), guided by perplexity (LongRoPE) or by
needles (LongRoPE2). Targets below the trained context change nothing.
"""

from typing import Annotated, Self

import numpy as np
from pydantic import Field, model_validator

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, frequencies, value
from lce_core.methods import Method
from lce_core.methods.longrope.search import FactorSearch, critical_pairs
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.stated import longrope_temperature

Factors = tuple[Annotated[float, Field(gt=0)], ...]
"""Divisors of the frequencies, one for each pair, that of the highest frequency first."""


class LongRope(Method):
    """Interpolation with a factor for each frequency pair."""

    family = "interpolation"

    long_factors: Factors | None = None
    """Divisor of each pair's frequency, highest frequency first (`long_factor` in config.json).
    None means that a step of the study searches for them."""
    short_factors: Factors | None = None
    """The same for requests up to the trained context (`short_factor` in config.json); None means
    `long_factors` at every length."""
    attention_factor: float | None = Field(default=None, gt=0)
    """Factor that multiplies both queries and keys; None means sqrt(1 + ln s / ln C) for the
    trained context C and s = target context / C."""
    search: FactorSearch = FactorSearch()
    """Settings of the search for `long_factors`."""

    @model_validator(mode="after")
    def _search_has_effect(self) -> Self:
        if self.long_factors is not None and self.search != FactorSearch():
            raise SpecError(
                "search",
                "`search` together with `long_factors`",
                "`search` only without `long_factors`, because it finds them",
                "remove `long_factors` or `search`",
            )
        return self

    def open_search(self) -> FactorSearch | None:
        return self.search if self.long_factors is None else None

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        search = self.open_search()
        if search and lengths.target <= lengths.trained:
            raise SpecError(
                "longrope.search",
                f"a target context of {lengths.target} tokens",
                f"more than the trained context of {lengths.trained} tokens",
                "raise target_context, or state `long_factors`",
            )
        least = len(critical_pairs(geometry))
        if search and search.guide == "needles" and search.population < least:
            raise SpecError(
                "longrope.search.population",
                search.population,
                f"at least {least}, because the search starts with each critical pair of the model",
                "raise the population",
            )
        for name in ("long_factors", "short_factors"):
            factors = getattr(self, name)
            if factors is not None and len(factors) != geometry.num_pairs:
                raise SpecError(
                    f"longrope.{name}",
                    f"{len(factors)} factors",
                    f"one for each of the model's {geometry.num_pairs} frequency pairs",
                    "list as many factors as pairs, that of the highest frequency first",
                )

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Return divided frequencies; before a search, by the factors with which it starts."""
        if lengths.target <= lengths.trained:
            return RopeTable(geometry.inv_freq())
        short = self.short_factors is not None and lengths.request <= lengths.trained
        long = self.long_factors or self.search.start(geometry, lengths)
        factors = np.array(self.short_factors if short else long)
        attention_factor = self.attention_factor
        if attention_factor is None:
            scale = lengths.target / lengths.trained
            attention_factor = longrope_temperature(scale, lengths.trained)
        return RopeTable(geometry.inv_freq() / factors, attention_factor)

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        return self.short_factors is not None and lengths.request > lengths.trained


PHI3 = RopeGeometry(96, 96, 32, 32, 1e4, 4096)
"""Geometry of microsoft/Phi-3-vision-128k-instruct, whose target context is 131,072 tokens."""
# fmt: off
PHI3_LONG = (
    1.03, 1.05, 1.05, 1.08, 1.23, 1.23, 1.3, 1.45, 1.6, 1.65, 1.9, 2.86, 3.69, 5.42, 5.49, 5.49,
    9.09, 11.58, 15.66, 15.77, 15.79, 18.36, 21.99, 23.08, 30.01, 32.35, 32.59, 35.56, 39.95, 53.84,
    56.2, 57.95, 59.29, 59.77, 59.92, 61.19, 61.96, 62.5, 63.37, 63.48, 63.48, 63.66, 63.85, 64.08,
    64.76, 64.8, 64.81, 64.81,
)
"""The `long_factor` that Phi-3 publishes; its file states these values in float32."""
PHI3_SHORT = (
    1.05, 1.05, 1.05, 1.1, 1.1, 1.1, 1.25, 1.25, 1.4, 1.45, 1.55, 1.85, 1.9, *(19 * (2.0,)), 2.1,
    2.1, 2.2, 2.35, 2.35, 2.35, 2.35, 2.4, 2.4, 2.65, 2.7, 2.9, 2.95, 3.05, 3.05, 3.05,
)
"""The `short_factor` that Phi-3 publishes."""
# fmt: on

METHOD = LongRope
SOURCE = Source(
    paper="arXiv:2402.13753",
    place="section 3.2, equation 3, table 4; section 3.2 of arXiv:2502.20082; attention factor of"
    " the Phi-3 models",
    reference="https://github.com/huggingface/transformers/blob/v5.23.0/src/transformers/"
    "modeling_rope_utils.py; github.com/microsoft/LongRoPE@"
    "c9e56aa54007c328399677232a489feec446e4b8",
    differs="the first tokens of a text are interpolated like all others: their number (n-hat) is"
    " not searched for. No second search for short texts, and no progressive extension. Losses are"
    " those of whole windows, without a sliding window. A crossover exchanges neighbouring factors"
    " of two parents; a mutation or crossover that stays invalid is left out. The search starts"
    " from PI, NTK and YaRN with factors up to 1.25 s for an extension by s, as in the paper; the"
    " authors' code starts from YaRN alone, with factors up to 1 + s, and crosses single factors."
    " Under partial rotary the attention factor acts on whole heads; transformers scales only the"
    " rotated elements. A request has one table; transformers changes it when a text outgrows the"
    " trained context, and keeps earlier keys",
)
EVIDENCE = (
    frequencies(
        (0.970873786, 2.7100271e-2, 3.33222259e-4, 1.61394448e-5, 1.86935297e-6),
        origin=f"{EXACT}; Phi-3's long factors",
        pairs=(0, 12, 24, 36, 47),
        geometry=PHI3,
        target=131072,
        long_factors=PHI3_LONG,
        short_factors=PHI3_SHORT,
    ),
    frequencies(
        (0.952380952, 5.26315789e-2, 5.0e-3, 4.25531915e-4, 3.97222183e-5),
        origin=f"{EXACT}; Phi-3's short factors",
        pairs=(0, 12, 24, 36, 47),
        geometry=PHI3,
        target=131072,
        request=4096,
        long_factors=PHI3_LONG,
        short_factors=PHI3_SHORT,
    ),
    value(
        "attention_factor",
        1.1902380714238083,
        "sqrt(1 + ln 32 / ln 4096) = sqrt(17 / 12), by hand; and transformers 5.23 'longrope'",
        geometry=PHI3,
        target=131072,
        long_factors=PHI3_LONG,
    ),
    value("attention_factor", 1.0, "as given", long_factors=(8.0,) * 64, attention_factor=1.0),
)
# For the models of the contract tests, which have four pairs.
EXAMPLES: Examples = (
    {"long_factors": [1.0, 1.5, 3.0, 4.0]},
    {"long_factors": [1.0, 2.0, 3.0, 5.0], "short_factors": [1.0, 1.1, 1.2, 1.5]},
    {"long_factors": [2.0, 2.0, 4.0, 4.0], "attention_factor": 1.5},
    {"search": {"guide": "needles"}},
    {},
)
VERSION = 1
