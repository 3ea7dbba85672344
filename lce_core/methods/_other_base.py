"""Methods that replace the RoPE base for all pairs and lengths."""

from __future__ import annotations

from lce_core.evidence import EXACT, frequencies
from lce_core.methods import Base, Method
from lce_core.registry import Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class OtherBase(Method):
    """Replaces the model's RoPE base by `base`, for all pairs and all request lengths."""

    family = "base"

    base: Base

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq(self.base))


class AdjustedBase(OtherBase):
    """Adjusted base frequency in one stage: a larger RoPE base, trained directly at the target."""

    plugin_name = "abf_single_stage"
    plugin_version = 1
    source = Source(
        paper="arXiv:2412.07171",
        place="section 4.1, ABF single-stage",
        reference="own",
    )
    evidence = (
        frequencies(
            (1.0, 7.858300e-1, 2.114743e-2, 5.690971e-4, 4.472136e-4, 9.457416e-6, 2.545080e-7),
            origin=f"{EXACT}; base 5e6",
        ),
        frequencies(
            (1.0, 8.058422e-1, 3.162278e-2, 1.240938e-3, 1.0e-3, 3.162278e-5, 1.240938e-6),
            origin=f"{EXACT}; base 1e6, of the first stage of multi-stage ABF",
            base=1e6,
        ),
        frequencies(
            (1.0, 7.971617e-1, 2.659148e-2, 8.870306e-4, 7.071068e-4, 1.880302e-5, 6.272253e-7),
            origin=f"{EXACT}; base 2e6, of the second stage of multi-stage ABF",
            base=2e6,
        ),
    )

    base: Base = 5e6
    """RoPE base at every length."""


class BoundKept(OtherBase):
    """Method 1 of Men et al. 2024: a larger RoPE base with which B_m stays non-negative.

    Design: B_m is the paper's measure of how well attention distinguishes a similar token from a
    random one at distance m (`lce_core.rope.bound`). rope_theta becomes 5e6 at every length. With
    this base no pair turns further than in training, and B_m is non-negative up to 82999 tokens.
    The counterpart rope_base_method_2 differs in one point: its B_m turns negative.
    """

    plugin_name = "rope_base_method_1"
    plugin_version = 1
    source = Source(
        paper="arXiv:2405.14591",
        place="section 5.5 and table 4, method 1",
        reference="own",
    )
    evidence = (
        frequencies(
            (1.0, 7.858300e-1, 2.114743e-2, 5.690971e-4, 4.472136e-4, 9.457416e-6, 2.545080e-7),
            origin=f"{EXACT}; base 5e6",
        ),
    )

    base: Base = 5e6
    """RoPE base at every length."""


class SmallBase(OtherBase):
    """A smaller RoPE base: low perplexity at long lengths, but little use of distant tokens.

    Design: rope_theta becomes 500, less than the smallest base that the paper's bound requires for
    a long context (`lce_core.rope.bound`). The method is a control: it shows that perplexity alone
    does not measure whether a model uses distant tokens.
    """

    plugin_name = "small_base"
    plugin_version = 1
    source = Source(
        paper="arXiv:2405.14591",
        place="sections 3 and 5.4: base 500, fine-tuned at 32768 tokens",
        reference="own",
    )
    evidence = (
        frequencies(
            (1.0, 9.074623e-1, 2.114743e-1, 4.928178e-2, 4.472136e-2, 9.457416e-3, 2.203948e-3),
            origin=f"{EXACT}; base 500",
        ),
    )

    base: Base = 500.0
    """RoPE base at every length."""
