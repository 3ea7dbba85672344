"""Adjusted base frequency in stages: each training run has longer rows and a larger RoPE base.

Design: each stage is a separate fine-tuning run that starts from the previous stage's weights, with
a fresh optimiser and warmup. Row lengths double from stage to stage and end at the target.
Inference uses the base of the last stage at every length.
"""

import math

from pydantic import Field

from lce_core.errors import SpecError
from lce_core.evidence import EXACT, frequencies
from lce_core.methods import METHODS, Base, Method, TrainingStage
from lce_core.registry import Examples, Source
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


class AdjustedBaseInStages(Method):
    """A larger RoPE base at every length, reached in several training runs."""

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
        return tuple(
            TrainingStage(self._stage_at(base), lengths.target >> (last - stage), shares[stage])
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

    def _stage_at(self, base: float) -> Method:
        # A stage is an abf_single_stage run. It therefore has the same step id as in a study of
        # that method at this base and length, and both studies use one result.
        shared = self.model_dump(include={*Method.model_fields}, exclude_defaults=True)
        return METHODS.load("abf_single_stage").model_validate({"base": base, **shared})


METHOD = AdjustedBaseInStages
SOURCE = Source(
    paper="arXiv:2412.07171",
    place="section 4.1 and Table 1, ABF multi-stage (uniform)",
    reference="own",
    differs="the paper does not print its carefully selected split of tokens; equal fractions are"
    " its uniform row. Optimiser and warmup restart in each stage; the paper leaves this open. Each"
    " stage draws its documents again with the run's seed, so stages with equal fractions see the"
    " same documents",
)
EVIDENCE = (
    frequencies(
        (1.0, 7.858300e-1, 2.114743e-2, 5.690971e-4, 4.472136e-4, 9.457416e-6, 2.545080e-7),
        origin=f"{EXACT}; base 5e6, of the last stage",
        target=131072,
    ),
)
EXAMPLES: Examples = ({"bases": [1e6, 4e6], "shares": [0.25, 0.75]}, {})
VERSION = 1
