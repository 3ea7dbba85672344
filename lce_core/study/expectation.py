"""Expectations: comparisons of methods that an author predicts before the study runs.

Each entry of `expects` names one variant (a method, tuned or not), the variants to compare with, a
benchmark and lengths. `comparisons` expands the entries into pairs of variants at one length. An
entry with `predicts: perplexity` instead concerns several variants: those with a lower perplexity
should have better scores. The catalog tests the entries in their order. `in_trained_context` adds
the comparisons with the base model that every study makes.

This module does not import torch.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from lce_core.benchmarks import Benchmark
from lce_core.errors import SpecError, require_known
from lce_core.recipe import Section
from lce_core.study.variants import CONTROL, variant_in_words

MAX_ENTRIES = 100
MAX_COMPARISONS = 10_000
"""Pairs of variants at one length from all entries; the plan file stores each."""
MAX_SAYS = 500
_MAX_NAME = 100
_MARGIN = re.compile(r"(\d+(?:\.\d+)?) (%|accuracy|nats)")
_UNITS = {"accuracy": "accuracy", "perplexity": "%", "nats": "nats"}
"""Unit of `within` by unit of the benchmark. Perplexities are compared by their ratio."""

MARGINS_IN_TRAINED_CONTEXT = ("2 %", "0.02 nats", "0.02 accuracy")
"""Default margins of `in_trained_context`."""

VariantName = Annotated[str, Field(max_length=_MAX_NAME)]


class Expectation(Section):
    """An entry of `expects`: how one variant should score compared with others.

    Names of variants are labels of methods, with "-tuned" appended for a tuned variant.
    """

    better: VariantName | None = None
    """Name of the variant that should score better."""
    worse: VariantName | None = None
    """Name of the variant that should score worse."""
    not_worse: VariantName | None = None
    """Name of the variant that should score at most `within` worse (non-inferiority)."""
    equal: VariantName | None = None
    """Name of the variant whose score should differ by at most `within` (equivalence)."""
    predicts: Literal["perplexity"] | None = None
    """Methods with a lower perplexity should have better scores on `benchmark` at the same length.
    An entry has exactly one of `better`, `worse`, `not_worse`, `equal` and `predicts`."""
    than: tuple[VariantName, ...] = Field(default=(), max_length=MAX_ENTRIES)
    """Names of the variants to compare with. Each of them is compared separately."""
    to: tuple[VariantName, ...] = Field(default=(), max_length=MAX_ENTRIES)
    """Names of the variants to compare with, for `equal`. Each of them is compared separately."""
    within: str | None = Field(
        default=None, max_length=_MAX_NAME, strict=False, coerce_numbers_to_str=True
    )
    """Margin of `not_worse` and `equal` with its unit: "0.02 accuracy", "0.01 nats", or, for
    perplexities, "2 %" of the other variant's."""
    among: tuple[VariantName, ...] = Field(default=(), max_length=MAX_ENTRIES)
    """Names of the variants that `predicts` orders. Defaults to those with exact attention."""
    benchmark: str = Field(max_length=_MAX_NAME)
    """Name of the benchmark. The comparison uses the mean score of its tasks."""
    metric: str | None = Field(default=None, max_length=_MAX_NAME)
    """Metric of the benchmark, such as "margin". Defaults to the benchmark's default metric."""
    weight: float | None = Field(default=None, ge=0, le=1)
    """Share of 0.05 with which the entry is tested; a decided entry passes its share on to the
    next. All entries but those with `predicts` have a weight, and they add up to 1, or none has:
    then the first has all."""
    lengths: tuple[int, ...] | None = Field(default=None, min_length=1, max_length=MAX_ENTRIES)
    """Evaluated lengths in tokens. Defaults to all lengths at which both variants are evaluated."""
    base_model: str | None = Field(default=None, max_length=_MAX_NAME)
    """Name of one of the study's base models. Defaults to all base models."""
    says: str | None = Field(default=None, min_length=1, max_length=MAX_SAYS)
    """Sentence that the report shows for this entry. Defaults to a sentence made from the keys."""
    claim: str | None = Field(default=None, min_length=1, max_length=MAX_SAYS)
    """Published claim that this entry tests, such as "LCEG: approximate attention is worse".
    `lce claims` counts the outcomes of equal claims over all studies."""

    @model_validator(mode="after")
    def _one_direction(self) -> Expectation:
        given = [key for key in _DIRECTIONS if getattr(self, key) is not None]
        if len(given) != 1:
            raise SpecError(
                "better",
                " and ".join(f"`{key}`" for key in given) or "none of the keys below",
                f"exactly one of {', '.join(f'`{key}`' for key in _DIRECTIONS)}",
                "write, for example, `better: METHOD`",
            )
        others = {"equal": "to", "predicts": ""}.get(given[0], "than")
        unused = [key for key in ("than", "to") if key != others and getattr(self, key)]
        if unused or (others and not getattr(self, others)):
            raise SpecError(
                others or unused[0],
                f"`{unused[0]}`" if unused else "no methods",
                f"{f'`{others}` with the' if others else 'no'} methods to compare with, because the"
                f" entry has `{given[0]}`",
                f"write `{others}: [METHOD]`" if others else f"remove `{unused[0]}`",
            )
        if self.among and not self.predicts:
            raise SpecError(
                "among", ", ".join(self.among), "no `among` except in entries with `predicts`",
                f"remove it, or name the methods in `{others}`",
            )  # fmt: skip
        for key in ("than", "to", "among", "lengths"):
            listed = getattr(self, key) or ()
            if len(set(listed)) < len(listed):
                raise SpecError(
                    key, ", ".join(map(str, listed)), "each once, because it is compared once",
                    "remove what is repeated",
                )  # fmt: skip
        if self.subject in self.others:
            raise SpecError(
                others,
                f"{self.subject}, which would be compared with itself",
                "other methods of the study",
                f"remove it from `{others}`",
            )
        if (self.within is not None) != (given[0] in ("not_worse", "equal")):
            raise SpecError(
                "within",
                self.within or "no margin",
                "a margin with its unit for `not_worse` and `equal`, and none for other entries",
                'write, for example, `within: "0.02 accuracy"`, or remove it',
            )
        return self

    @property
    def subject(self) -> str:
        return str(getattr(self, self.key))

    @property
    def others(self) -> tuple[str, ...]:
        return self.than or self.to

    @property
    def key(self) -> str:
        return next(key for key in _DIRECTIONS if getattr(self, key) is not None)

    @property
    def direction(self) -> str:
        return self.key.replace("_", " ")

    def margin(self, where: str, unit: str) -> float | None:
        """Return the margin as an absolute difference, or as a fraction of a perplexity."""
        if self.within is None:
            return None
        found, expected = _MARGIN.fullmatch(self.within.strip()), _UNITS.get(unit, unit)
        if not found or found[2] != expected or not float(found[1]):
            raise SpecError(
                f"{where}.within",
                self.within,
                f"a positive number and the unit {expected}, because {self.benchmark} has the unit"
                f" {unit}",
                f'write, for example, `within: "{"2" if expected == "%" else "0.02"} {expected}"`',
            )
        return float(found[1]) / (100 if expected == "%" else 1)

    def text(self, variants: Mapping[str, tuple[str, bool]]) -> str:
        """Return `says`, or a sentence such as "yarn is better than pi on ruler".

        `variants` has label and frozen (True or False) by name.
        """
        if self.predicts:
            benchmark = self.benchmark.replace("_", " ")
            return self.says or f"Methods with a lower perplexity score better on {benchmark}"
        subject, *others = (variant_in_words(*variants[it]) for it in (self.subject, *self.others))
        relation = f"{self.direction} {'to' if self.equal else 'than'}"
        within = f" within {self.within}" if self.within else ""
        return self.says or (
            f"{subject} is {relation} {', '.join(others)} on {self.benchmark.replace('_', ' ')}"
            f"{within}"
        )


_DIRECTIONS = ("better", "worse", "not_worse", "equal", "predicts")
Evaluated = Mapping[str, Mapping[str, Set[tuple[int, str]]]]
"""Pairs (length in tokens, task) that a study evaluates, by benchmark and variant."""


def comparisons(
    expects: Sequence[Expectation],
    variants: Mapping[str, tuple[str, bool]],
    evaluated: Evaluated,
    base_models: Sequence[str],
    benchmarks: Mapping[str, Benchmark],
) -> Iterator[dict[str, Any]]:
    """Expand a study's expectations: one comparison per pair of variants, length and base model.

    An entry with `predicts` has one comparison per length and base model, without variants.
    `variants` are as in `Expectation.text`. Metrics other than a benchmark's default are in nats.
    """
    named_by: dict[tuple[object, ...], int] = {}
    for index, entry in enumerate(expects):
        where = f"expects[{index}]"
        models = [] if entry.base_model is None else [entry.base_model]
        require_known(
            f"{where}.benchmark", [entry.benchmark], "a benchmark of the study", evaluated
        )
        require_known(f"{where}.base_model", models, "a base model of the study", base_models)
        methods = [(f"among[{number}]", name) for number, name in enumerate(entry.among)]
        if not entry.predicts:
            key = "to" if entry.equal else "than"
            methods = [(entry.key, entry.subject), *((key, name) for name in entry.others)]
        expected = "a method of the study, with -tuned if it is tuned"
        for key, name in methods:
            require_known(f"{where}.{key}", [name], expected, variants)
        by_variant = evaluated[entry.benchmark]
        unit = benchmarks[entry.benchmark].unit
        if entry.metric is not None:
            known = benchmarks[entry.benchmark].sample_metrics
            if entry.metric not in known:
                raise SpecError(
                    f"{where}.metric", entry.metric,
                    f"a metric of {entry.benchmark} that can be compared: "
                    f"{', '.join(known) or 'none but the default one'}",
                    "choose one of these, or remove `metric` for the default metric",
                )  # fmt: skip
            unit = "nats"
        margin = entry.margin(where, unit)
        for other in entry.others or (None,):
            if other is None:
                lengths = _predicted_lengths(where, entry, evaluated, benchmarks)
            else:
                shared = by_variant.get(entry.subject, set()) & by_variant.get(other, set())
                what = f"both {entry.subject} and {other} on the same task"
                lengths = _lengths(where, entry, {length for length, _ in shared}, what)
            subject = (None, None) if other is None else variants[entry.subject]
            against = (None, None) if other is None else variants[other]
            for length, base_model in itertools.product(lengths, models or base_models):
                found = {
                    "entry": index,
                    "text": entry.text(variants),
                    **({"claim": entry.claim} if entry.claim else {}),
                    **({"metric": entry.metric} if entry.metric else {}),
                    **({} if entry.weight is None else {"weight": entry.weight}),
                    **({"among": list(entry.among)} if entry.among else {}),
                    "base_model": base_model,
                    "method": subject[0],
                    "frozen": subject[1],
                    "expected": entry.direction,
                    "margin": margin,
                    "other_method": against[0],
                    "other_frozen": against[1],
                    "benchmark": entry.benchmark,
                    "eval_length": length,
                }
                if (first := named_by.setdefault(_pair(found), index)) != index:
                    raise SpecError(
                        where,
                        f"the comparison of {entry.subject} and {other or 'the benchmark'} on"
                        f" {entry.benchmark} at {length} tokens, which expects[{first}] names too",
                        "each comparison once, because it is tested once",
                        "remove it from one of the two entries",
                    )
                yield found


def check_weights(expects: Sequence[Expectation], base_models: Sequence[str]) -> None:
    """Refuse weights unless all entries have one and their sum is 1.

    The first entry about each base model needs a positive one.
    """
    tested = [one for one in expects if not one.predicts]
    weights = [one.weight for one in tested if one.weight is not None]
    without = next((n for n, one in enumerate(expects) if one.predicts and one.weight), None)
    if weights and (len(weights) < len(tested) or abs(sum(weights) - 1) > 1e-9):
        raise SpecError(
            "expects",
            f"{len(weights)} weights for {len(tested)} entries, with the sum {sum(weights):g}",
            "a weight for every entry without `predicts`, with the sum 1, or no weight",
            "add or correct the weights, or remove all for tests in the order of the entries",
        )
    for model in base_models if weights else ():
        own = [one for one in tested if one.base_model in (None, model)]
        if own and not own[0].weight:
            raise SpecError(
                "expects", f"the weight 0 for the first tested entry of {model}",
                "a positive one, because no earlier entry passes its share on to this one",
                "give it a share, or place it after another entry of this base model",
            )  # fmt: skip
    if without is not None:
        raise SpecError(
            f"expects[{without}].weight", expects[without].weight,
            "no weight: entries with `predicts` are a family of their own", "remove it",
        )  # fmt: skip


def _predicted_lengths(
    where: str, entry: Expectation, evaluated: Evaluated, benchmarks: Mapping[str, Benchmark]
) -> Sequence[int]:
    texts = {name for name, one in benchmarks.items() if one.unit == "perplexity"}
    losses, scores = (
        {
            length
            for name in names & evaluated.keys()
            for asked in evaluated[name].values()
            for length, _ in asked
        }
        for names in (texts, {entry.benchmark} - texts)
    )
    return _lengths(where, entry, losses & scores, "both perplexity and an accuracy")


def in_trained_context(
    expected: Sequence[Mapping[str, Any]],
    margins: Sequence[str],
    variants: Mapping[str, tuple[str, bool]],
    evaluated: Evaluated,
    contexts: Mapping[str, int | None],
    benchmarks: Mapping[str, Benchmark],
) -> Iterator[dict[str, Any]]:
    """Yield the default comparisons: each variant is not worse than the base model.

    Compare at the longest length within the base model's trained context at which both are
    evaluated on the same task. Omit pairs that the study's own expectations compare there, models
    of unknown context, and benchmarks without a margin of their unit.
    """
    taken = {_pair(one) for one in expected}
    of_unit = {margin.rpartition(" ")[2]: margin for margin in margins}
    for (base_model, context), (benchmark, by_variant) in itertools.product(
        contexts.items(), evaluated.items()
    ):
        within = of_unit.get(_UNITS.get(benchmarks[benchmark].unit, ""))
        base = by_variant.get(CONTROL, set())
        for name, own in by_variant.items():
            lengths = [length for length, _ in own & base if length <= (context or 0)]
            if within is None or name == CONTROL or not lengths:
                continue
            entry = Expectation(
                not_worse=name, than=(CONTROL,), within=within, benchmark=benchmark,
                lengths=(max(lengths),), base_model=base_model,
            )  # fmt: skip
            for one in comparisons([entry], variants, evaluated, [base_model], benchmarks):
                if _pair(one) not in taken:
                    yield {**one, "entry": None}


def _pair(one: Mapping[str, Any]) -> tuple[object, ...]:
    methods = (one["method"], one["frozen"]), (one["other_method"], one["other_frozen"])
    where = one["base_model"], one["benchmark"], one["eval_length"], one.get("metric")
    return *where, frozenset(methods), tuple(one.get("among", ()))


def check_margins(margins: Sequence[str]) -> None:
    """Require positive `short_context_margins` with a unit, each unit once."""
    found = [_MARGIN.fullmatch(margin) for margin in margins]
    units = [one[2] for one in found if one and float(one[1])]
    if len(set(units)) < len(margins):
        raise SpecError(
            "short_context_margins",
            ", ".join(margins),
            "positive numbers with the units %, nats and accuracy, each unit at most once",
            "write, for example, `short_context_margins: [2 %, 0.02 accuracy]`, or [] for no"
            " comparisons",
        )


def _lengths(where: str, entry: Expectation, known: Set[int], what: str) -> Sequence[int]:
    missing = sorted(set(entry.lengths or ()) - known)
    if missing or not known:
        at = f" at {missing[0]} tokens" if missing else ""
        raise SpecError(
            f"{where}.lengths" if missing else f"{where}.benchmark",
            f"{entry.benchmark}{at}, where the study does not evaluate {what}",
            f"a length at which it does: {', '.join(map(str, sorted(known)))}"
            if known
            else "a benchmark and length at which it does",
            "choose another length, or add the methods to this entry of `benchmarks`",
        )
    return entry.lengths or sorted(known)
