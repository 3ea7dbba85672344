"""Methods that replace the RoPE base for all pairs and lengths."""

from __future__ import annotations

import math

from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, frequencies
from lce_core.methods import Base, Method, TrainingStage
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


class AdjustedBaseInStages(Method):
    """Adjusted base frequency in stages: each training run has longer rows and a larger RoPE base.

    Design: each stage is a separate fine-tuning run that starts from the previous stage's weights,
    with a fresh optimiser and warmup. Row lengths double from stage to stage and end at the target.
    Inference uses the base of the last stage at every length.
    """

    plugin_name = "abf_multi_stage"
    plugin_version = 1
    source = Source(
        paper="arXiv:2412.07171",
        place="section 4.1 and Table 1, ABF multi-stage (uniform)",
        reference="own",
        differs="the paper does not print its carefully selected split of tokens; equal fractions"
        " are its uniform row. Optimiser and warmup restart in each stage; the paper leaves this"
        " open. Each stage draws its documents again with the run's seed, so stages with equal"
        " fractions see the same documents",
    )
    evidence = (
        frequencies(
            (1.0, 7.858300e-1, 2.114743e-2, 5.690971e-4, 4.472136e-4, 9.457416e-6, 2.545080e-7),
            origin=f"{EXACT}; base 5e6, of the last stage",
            target=131072,
        ),
    )
    examples = ({"bases": [1e6, 4e6], "shares": [0.25, 0.75]}, {})

    family = "base"
    training = "required"

    bases: tuple[Base, ...] = Field(default=(1e6, 2e6, 5e6), min_length=2)
    """RoPE base of each stage; inference uses the last base."""
    shares: tuple[float, ...] | None = None
    """Fraction of train_tokens for each stage, 1 in total; None means equal fractions."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        return RopeTable(geometry.inv_freq(self.bases[-1]))

    def stages(self, lengths: ContextLengths) -> tuple[TrainingStage, ...]:
        shares = self.shares or [1 / len(self.bases)] * len(self.bases)
        last = len(self.bases) - 1
        # A stage has the same step id as in a study of abf_single_stage at this base and length, so
        # that both studies use one result.
        return tuple(
            TrainingStage(AdjustedBase(base=base), lengths.target >> (last - stage), shares[stage])
            for stage, base in enumerate(self.bases[:-1])
        )

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        if self.shares is not None:
            fit = len(self.shares) == len(self.bases) and min(self.shares) > 0
            if not fit or not math.isclose(sum(self.shares), 1, abs_tol=1e-9):
                raise SpecError(
                    "abf_multi_stage.shares",
                    list(self.shares),
                    f"one positive fraction for each of the {len(self.bases)} bases, 1 in total",
                    "correct the shares, or remove the key",
                )
        parts = 1 << (len(self.bases) - 1)
        if lengths.target % parts:
            raise SpecError(
                "abf_multi_stage.bases",
                f"{len(self.bases)} stages to {lengths.target} tokens",
                f"a target divisible by {parts}, because rows double from stage to stage",
                f"remove bases, or set target_context to a multiple of {parts}",
            )


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
