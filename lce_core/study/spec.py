"""The content of a study file: `StudySpec`, its entries and the checks across them.

Every setting that can change a result is part of the fingerprints of the steps it affects. This
module does not import torch.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from lce_core.benchmarks import Benchmark
from lce_core.corpora import Corpus
from lce_core.errors import SpecError, did_you_mean, require_known
from lce_core.methods import Method
from lce_core.models import MODELS, LanguageModel
from lce_core.recipe import STRICT, Evaluation, Section, Training, TrainPositions, Upsampling
from lce_core.registry import Plugin
from lce_core.spec_errors import spec_error
from lce_core.study.expectation import (
    MARGINS_IN_TRAINED_CONTEXT,
    MAX_COMPARISONS,
    MAX_ENTRIES,
    Expectation,
    check_margins,
    check_weights,
    comparisons,
    in_trained_context,
)
from lce_core.study.tuning import Tune, changed
from lce_core.study.variants import variant_name

_OF_TRAINING = ("train_length", "train_tokens", "training", "upsampling", "start_from")
MAX_NAME = 100
"""File and folder names are made from the study's name."""
MAX_LABEL = 64
"""An artifact's folder name of at most 255 bytes contains the labels of base model and method."""
MAX_SEEDS = 1000
MIN_LOOK = 2
"""One seed does not show the variance between seeds."""
MIN_LOOK_PERCENT = 1
"""Share of all seeds in the first look. Its level is then 1.5e-85; at 0.25 % it underflows to 0."""
MAX_CELLS = 250_000
"""Planning 248,400 cells takes 172 s and 1.3 GB of memory on two busy cores."""


_REGISTERED_APART = {
    *("study", "hypothesis", "corpus", "base_models", "methods", "method", "label", "benchmarks"),
    *("seeds", "expects", "short_context_margins", "looks", "evaluation"),
}
"""Keys of a study and of its methods that a registration has in parts of their own, or that only
name."""


class MethodEntry(Section):
    """A variant: an entry of `methods`, frozen (without training) or tuned (fine-tuned).

    If the entry omits `target_context`, `train_tokens` or `training`, `StudySpec.target_of` and
    similar methods return the study's value.
    """

    method: Method
    """The method and its parameters. A study file gives them as `name` and further keys."""
    label: str = Field(pattern=r"^[a-z0-9][a-z0-9_]*$", max_length=MAX_LABEL)
    """Name in tables. Defaults to the method's name. Several frozen entries of one method need
    different labels, and so do several tuned ones."""
    tuned: bool = False
    """Fine-tune the base model with the method before evaluating."""
    train_positions: TrainPositions = "exact"
    """Rounding to bf16 when training computes RoPE angles: none (exact), of token positions (bf16),
    or of positions, frequencies and angles (bf16_angles). pose trains rows of `train_length`
    tokens whose positions skip once, so that they reach the target context (PoSE)."""
    target_context: int | None = Field(default=None, gt=0)
    """Context length in tokens to which the variant extends the model. Defaults to the study's."""
    train_length: int | None = Field(default=None, gt=0)
    """Length of a training row in tokens. Defaults to the target context."""
    train_tokens: int | None = Field(default=None, gt=0)
    """Number of training tokens. Defaults to the study's."""
    training: Training | None = None
    """Training settings (optimizer and schedule). Omitted keys default to those of the entry's
    `recipe`, or else to the study's."""
    upsampling: Upsampling | None = None
    """Sampling of the variant's training text, instead of the study's. Keys that are omitted here
    have their own defaults, not the study's values."""
    start_from: str | None = None
    """Name of another tuned variant, whose weights initialise the training. Defaults to the base
    model's weights."""
    checkpoint: str | None = Field(
        default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=MAX_NAME
    )
    """Name of published weights to evaluate instead of training; pass their folder with
    `--model-folder NAME=FOLDER`."""
    at_best: bool = False
    """Train with the value that `tune` chose for this variant. No key of a study file: `tune` adds
    these entries."""
    weights_of: str | None = None
    """Name of another tuned variant, whose weights this entry evaluates with its own method and
    parameters. The entry trains nothing."""

    @model_validator(mode="after")
    def _consistent(self) -> MethodEntry:
        name = self.method.plugin_name
        for key in _OF_TRAINING:
            if not self.tuned and getattr(self, key) is not None:
                raise SpecError(
                    key,
                    f"a value for {name}, which is not trained",
                    f"`{key}` only in entries with `tuned: true`",
                    f"add `tuned: true`, or leave out `{key}`",
                )
        tuned = "true" if self.tuned else None
        sources = {"weights_of": self.weights_of, "checkpoint": self.checkpoint, "tuned": tuned}
        given = [key for key, source in sources.items() if source is not None]
        if len(given) > 1:
            raise SpecError(
                given[0],
                " with ".join(f"{key}: {sources[key]}" for key in given),
                "one source of weights: published, of another entry, or trained by this entry",
                f"keep only {' or '.join(f'`{key}`' for key in given)}",
            )
        if self.checkpoint is not None and self.method.open_search():
            raise SpecError(
                "checkpoint",
                f"published weights for {name} with a search",
                "a method whose parameters are given, because the weights were trained with them",
                "state the parameters of the published weights, or remove `checkpoint`",
            )
        if (self.tuned or self.checkpoint is not None) and self.method.training == "none":
            raise SpecError(
                "tuned",
                f"trained weights for {name}, which works at inference only",
                "a method that can be trained",
                "remove `tuned` or `checkpoint`",
            )
        if not self.is_tuned and self.method.training == "required":
            raise SpecError(
                "tuned",
                f"tuned: false for {name}, which works only after training",
                "a trained variant of this method",
                "add `tuned: true`, or `checkpoint` with the name of published weights",
            )
        if not self.tuned and self.train_positions != "exact":
            raise SpecError(
                "train_positions",
                f"{self.train_positions} for {name}, which is not trained",
                "`train_positions` only in entries with `tuned: true`",
                "add `tuned: true`, or leave out `train_positions`",
            )
        return self

    @property
    def is_tuned(self) -> bool:
        return self.tuned or self.checkpoint is not None or self.weights_of is not None

    @property
    def name(self) -> str:
        """The label; for tuned variants with "-tuned" appended."""
        return variant_name(self.label, not self.is_tuned)


Length = Annotated[int, Field(gt=0)]


class BenchmarkEntry(Section):
    """An entry of `benchmarks`: a benchmark with its lengths, tasks and methods."""

    benchmark: Benchmark
    """The benchmark and its parameters. A study file gives them as `name` and further keys."""
    lengths: tuple[Length, ...] = Field(min_length=1)
    """Evaluated context lengths in tokens, including generated tokens."""
    tasks: tuple[str, ...] = Field(min_length=1)
    """Tasks to evaluate. Defaults to all tasks of the benchmark."""
    methods: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Names of the variants to evaluate, such as yarn or yarn-tuned. Defaults to all variants."""

    @model_validator(mode="after")
    def _distinct(self) -> BenchmarkEntry:
        _refuse_repeats("lengths", self.lengths)
        _refuse_repeats("tasks", self.tasks)
        _refuse_repeats("methods", self.methods or ())
        return self

    def evaluates(self, variant: MethodEntry) -> bool:
        return self.methods is None or variant.name in self.methods


class StudySpec(BaseModel):
    """A whole study. It evaluates every combination of base model, variant and seed.

    Each combination is evaluated on all benchmarks, tasks and lengths that apply to the variant.
    """

    model_config = STRICT

    study: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=MAX_NAME)
    """Name of the study: lower-case letters, digits and hyphens."""
    hypothesis: str
    """Findings that the author expects, written before the study runs."""
    target_context: int = Field(gt=0)
    """Context length in tokens to which the methods extend the base models."""
    train_tokens: int | None = Field(default=None, gt=0)
    """Number of tokens on which each tuned variant is trained, rounded down to whole optimizer
    steps. With `match: flops` it sets the FLOPs instead."""
    match: Literal["tokens", "flops"] = "tokens"
    """Training budget that is equal for all tuned variants. tokens: `train_tokens`, unless an entry
    has its own. flops: what `train_tokens` tokens cost with the unmodified model's full attention
    in rows of `target_context` tokens, to the nearest whole number of optimizer steps."""
    corpus: Corpus
    """Source of training and held-out text."""
    base_models: tuple[LanguageModel, ...] = Field(min_length=1)
    """Base models that every method extends."""
    methods: tuple[MethodEntry, ...] = Field(min_length=1)
    """Variants to compare."""
    training: Training | None = None
    """Training settings of the tuned variants. Required unless each tuned variant has its own."""
    benchmarks: tuple[BenchmarkEntry, ...] = Field(min_length=1)
    """Benchmarks to evaluate, each with its lengths and tasks."""
    seeds: tuple[int, ...] = Field(min_length=1, max_length=MAX_SEEDS)
    """Distinct seeds, 0 or more. Each seed trains and evaluates every variant once."""
    seeds_vary: Literal["all", "data", "weights"] = "all"
    """Parts of the training runs that follow the seed: all, only the training data (choice and
    order of rows), or only the random initial weights. The other part uses the first seed."""
    expects: tuple[Expectation, ...] = Field(default=(), max_length=MAX_ENTRIES)
    """Comparisons that the hypothesis predicts. They are not part of any fingerprint."""
    short_context_margins: tuple[str, ...] = Field(
        default=MARGINS_IN_TRAINED_CONTEXT, max_length=MAX_ENTRIES
    )
    """Margins by which a variant may score worse than the base model within the trained context:
    "2 %" of a perplexity, "0.02 nats", "0.02 accuracy". A benchmark whose unit is not listed is not
    compared. They are not part of any fingerprint."""
    tune: Tune | None = None
    """Grid of one training setting. A second copy of each tuned variant uses its best value."""
    looks: tuple[int, ...] | None = Field(default=None, min_length=1)
    """Numbers of seeds after which a run tests the comparisons in `expects`, such as [2, 4, 6]. The
    last one is the number of seeds. Methods whose comparisons are all settled are not computed for
    later seeds. By default the comparisons are tested once, after all seeds."""
    upsampling: Upsampling = Upsampling()
    """Sampling of training text by document length."""
    evaluation: Evaluation = Evaluation()
    """Settings shared by all benchmarks."""

    def target_of(self, variant: MethodEntry) -> int:
        return variant.target_context or self.target_context

    def train_length_of(self, variant: MethodEntry) -> int:
        """Return the length in tokens of the rows in a tuned variant's last run."""
        trained = self.weights_source_of(variant) or variant
        return trained.train_length or self.target_of(trained)

    def train_tokens_of(self, variant: MethodEntry) -> int:
        """Return the training tokens, or with `match: flops` those that set the FLOPs."""
        if tokens := variant.train_tokens or self.train_tokens:
            return tokens
        raise _missing_value("train_tokens", variant)

    def training_of(self, variant: MethodEntry) -> Training:
        if training := variant.training or self.training:
            return training
        raise _missing_value("training", variant)

    def upsampling_of(self, variant: MethodEntry) -> Upsampling:
        return variant.upsampling or self.upsampling

    def start_of(self, variant: MethodEntry) -> MethodEntry | None:
        return self._tuned(variant.start_from)

    def weights_source_of(self, variant: MethodEntry) -> MethodEntry | None:
        return self._tuned(variant.weights_of)

    def _tuned(self, name: str | None) -> MethodEntry | None:
        return next((one for one in self.methods if one.tuned and one.name == name), None)

    @property
    def design(self) -> dict[str, list[str]]:
        """Design that a run registers beside the expectations: lists of words, by kind of part."""
        plugins: list[tuple[str, Plugin]] = [
            ("corpus", self.corpus),
            *((one.known_as, one) for one in self.base_models),
            *((one.name, one.method) for one in self.methods),
        ]
        return {
            "seed": [str(seed) for seed in self.seeds],
            "method": [one.name for one in self.methods],
            "base model": [base.known_as for base in self.base_models],
            "evaluation": sorted(
                f"{entry.benchmark.plugin_name} {task} at {length:,} tokens"
                for entry in self.benchmarks
                for task, length in itertools.product(entry.tasks, entry.lengths)
            ),
            "setting": _in_words(
                ("evaluation", self.evaluation),
                *((one.benchmark.plugin_name, one.benchmark) for one in self.benchmarks),
            ),
            "parameter": [
                *(f"{where} name {plugin.plugin_name}" for where, plugin in plugins),
                *_in_words(("study", self), *plugins, *((one.name, one) for one in self.methods)),
            ],
        }

    def comparisons(
        self, contexts: Mapping[str, int | None] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Expand `expects` into pairs of variants (`expectation.comparisons`).

        Yield the default comparisons as well, with `contexts`, the trained context of each base
        model.
        """
        evaluated: dict[str, dict[str, set[tuple[int, str]]]] = {}
        for entry in self.benchmarks:
            by_variant = evaluated.setdefault(entry.benchmark.plugin_name, {})
            for variant in filter(entry.evaluates, self.methods):
                asked = itertools.product(entry.lengths, entry.tasks)
                by_variant.setdefault(variant.name, set()).update(asked)
        variants = {one.name: (one.label, not one.is_tuned) for one in self.methods}
        base_models = [base.known_as for base in self.base_models]
        benchmarks = {one.benchmark.plugin_name: one.benchmark for one in self.benchmarks}
        found = list(
            itertools.islice(
                comparisons(self.expects, variants, evaluated, base_models, benchmarks),
                MAX_COMPARISONS + 1,
            )
        )
        yield from found
        yield from in_trained_context(
            found, self.short_context_margins, variants, evaluated, contexts or {}, benchmarks
        )

    @property
    def validation_tokens(self) -> int:
        """Tokens per domain of the text that scores searches and trials of `tune`."""
        return (self.tune and self.tune.validation_tokens) or self.evaluation.held_out_tokens

    @property
    def num_cells(self) -> int:
        of_one_seed = sum(
            len(entry.tasks) * len(entry.lengths) * sum(map(entry.evaluates, self.methods))
            for entry in self.benchmarks
        )
        return len(self.base_models) * len(self.seeds) * of_one_seed

    @model_validator(mode="after")
    def _checked(self) -> StudySpec:
        self._countable()  # first, because later checks iterate over all cells
        self._consistent()
        self._searchable()
        self._fair()
        self._matched()
        self._whole_rows()
        self._one_start()
        self._one_cell_each()
        self._looks()
        self._testable()
        return self

    def _countable(self) -> None:
        if self.num_cells > MAX_CELLS:
            seeds, bases = len(self.seeds), len(self.base_models)
            raise SpecError(
                "benchmarks",
                f"{self.num_cells:,} cells ({bases:,} base models x {seeds:,} seeds x"
                f" {self.num_cells // (seeds * bases):,} of methods, tasks and lengths)",
                f"at most {MAX_CELLS:,} cells",
                "use fewer seeds, methods, tasks or lengths, or write several studies",
            )

    def _consistent(self) -> None:
        if self.evaluation.rotation == "stock" and self.evaluation.precision == "fp32":
            raise SpecError(
                "evaluation.rotation",
                "stock with `precision: fp32`, in which stock rotation does not differ",
                "`rotation: stock` only with `precision: bf16`",
                "leave out `rotation`, or set `precision: bf16`",
            )
        if min(self.seeds) < 0 or max(self.seeds) >= 1 << 63:
            wrong = next(seed for seed in self.seeds if not 0 <= seed < 1 << 63)
            raise SpecError("seeds", wrong, "seeds from 0 to 2^63 - 1", "choose another seed")
        _refuse_repeats("seeds", self.seeds)
        if self.seeds_vary == "weights" and any(b.pretraining() is None for b in self.base_models):
            raise SpecError(
                "seeds_vary",
                "weights, with a base model whose weights the study does not train",
                "`seeds_vary: weights` only with base models that start from random weights",
                "write `seeds_vary: data`, or leave out `seeds_vary`",
            )
        _refuse_repeats("base_models", [base.known_as for base in self.base_models])
        for base in self.base_models:
            if base.known_as != base.plugin_name and base.known_as in MODELS.names():
                raise SpecError(
                    "base_models",
                    f"label {base.known_as} for base model {base.plugin_name}",
                    "a label that is not the name of another base model",
                    "choose another `label`",
                )
        _refuse_repeats("methods", [variant.name for variant in self.methods])
        domains = self.corpus.domains()
        _check_shares("upsampling", self.upsampling, domains)
        for index, variant in enumerate(self.methods):
            _check_shares(f"methods[{index}].upsampling", self.upsampling_of(variant), domains)

    def _searchable(self) -> None:
        for index, variant in enumerate(self.methods):
            if variant.method.open_search() and self.validation_tokens < self.target_of(variant):
                raise SpecError(
                    f"methods[{index}]",
                    f"a search on {self.validation_tokens} tokens of validation text per domain",
                    f"at least {self.target_of(variant)}, the target context",
                    "raise `held_out_tokens` in `evaluation`, or `validation_tokens` in `tune`",
                )

    def _fair(self) -> None:
        tune = self.tune
        if tune is None:
            return
        if self.training is None or not any(variant.at_best for variant in self.methods):
            raise SpecError(
                "tune",
                "a study without tuned methods that share a training setting",
                f"tuned methods, and `training` with their common {tune.field}",
                "add `tuned: true` to a method and `training` to the study, or remove `tune`",
            )
        if tune.seed in self.seeds:
            raise SpecError(
                "tune.seed",
                f"{tune.seed}, a seed of the study",
                "another seed, so that no value is chosen on a reported run",
                "choose another `seed` in `tune`",
            )
        _known_domains("tune.domains", tune.domains, self.corpus.domains())
        window = max(self.target_of(variant) for variant in self.methods if variant.at_best)
        if self.validation_tokens < window:
            raise SpecError(
                "tune.validation_tokens",
                self.validation_tokens,
                f"at least {window}, one window at the longest target context of the trials",
                "raise `validation_tokens` in `tune`",
            )
        for value in tune.values:
            try:
                changed(self.training, tune.field, value)
            except ValidationError as error:
                raise spec_error(error, "tune", Training) from None

    def _matched(self) -> None:
        if self.match == "tokens":
            return
        tuned = [variant for variant in self.methods if variant.tuned]
        if not tuned or self.train_tokens is None:
            missing = "`train_tokens`" if tuned else "tuned methods"
            raise SpecError(
                "match",
                f"flops in a study without {missing}",
                "tuned methods, and `train_tokens` of the study, whose FLOPs each of them gets",
                f"add {missing}, or remove `match`",
            )
        for variant in tuned:
            if variant.train_tokens is not None:
                raise SpecError(
                    "match",
                    f"flops, and train_tokens {variant.train_tokens} of {variant.name}",
                    "one budget for all tuned methods, from the study's `train_tokens`",
                    "remove `train_tokens` of the entry (if its `recipe` sets it, write"
                    " `train_tokens: null`), or remove `match`",
                )

    def _whole_rows(self) -> None:
        for index, variant in enumerate(self.methods):
            if not variant.tuned:
                continue
            self.train_tokens_of(variant)
            training, length = self.training_of(variant), self.train_length_of(variant)
            own = "" if variant.training is None else f"methods[{index}]."
            if training.state_precision != "fp32" and training.precision != "bf16":
                raise SpecError(
                    f"{own}training.state_precision",
                    f"{training.state_precision} with precision {training.precision}",
                    f"{training.state_precision} only with `precision: bf16`",
                    "set precision: bf16 as well",
                )
            dtypes = training.precision, training.state_precision
            if training.param_dtype == "bf16" and dtypes != ("bf16", "fp32"):
                raise SpecError(
                    f"{own}training.param_dtype",
                    "bf16 with precision {} and state_precision {}".format(*dtypes),
                    "bf16 only with `precision: bf16` and `state_precision: fp32`",
                    "set both, or leave out param_dtype",
                )
            if variant.train_positions == "pose" and length >= self.target_of(variant):
                raise SpecError(
                    f"methods[{index}].train_length",
                    f"{length} with train_positions: pose",
                    f"rows shorter than the target context, {self.target_of(variant)}",
                    "set train_length, for example, to the base model's trained context",
                )
            if training.tokens_per_step % length:
                rows = "target_context" if variant.train_length is None else "train_length"
                raise SpecError(
                    f"{own}training.tokens_per_step",
                    training.tokens_per_step,
                    f"a multiple of {rows}, {length}, the row length of {variant.name}",
                    "change one of them",
                )

    def _one_start(self) -> None:
        tuned = [variant.name for variant in self.methods if variant.tuned]
        for index, key in itertools.product(range(len(self.methods)), ("start_from", "weights_of")):
            name = getattr(self.methods[index], key)
            if name is not None and name not in tuned:
                known = name in {other.name for other in self.methods}
                problem = "which is not trained" if known else "which is not in the study"
                raise SpecError(
                    f"methods[{index}].{key}",
                    f"{name!r}, {problem}",
                    "the name of an entry of methods with `tuned: true`, such as yarn-tuned",
                    did_you_mean(name, tuned),
                )
        for index, variant in enumerate(self.methods):
            path = [variant.name]
            start = self.start_of(variant)
            while start is not None and start.name not in path:
                path.append(start.name)
                start = self.start_of(start)
            if start is not None:
                raise SpecError(
                    f"methods[{index}].start_from",
                    f"a cycle: {', which starts from '.join([*path, start.name])}",
                    "a chain of training runs that starts from the base model",
                    "remove one `start_from` of the cycle",
                )

    def _one_cell_each(self) -> None:
        names = [variant.name for variant in self.methods]
        seen: dict[tuple[object, ...], int] = {}
        for index, entry in enumerate(self.benchmarks):
            expected = "a method of the study, with -tuned if it is tuned"
            require_known(f"benchmarks[{index}].methods", entry.methods or (), expected, names)
            for name in entry.methods or names:
                for task, length in itertools.product(entry.tasks, entry.lengths):
                    cell = (name, entry.benchmark.plugin_name, task, length)
                    if cell in seen:
                        raise SpecError(
                            f"benchmarks[{index}]",
                            f"{' '.join(map(str, cell))}, which is also in"
                            f" benchmarks[{seen[cell]}]",
                            "each method, task and length of a benchmark in one entry only",
                            "change methods, tasks or lengths of one of the two entries",
                        )
                    seen[cell] = index

    def _looks(self) -> None:
        if not (looks := self.looks):
            return
        number, steps = len(self.seeds), itertools.pairwise(looks)
        example = sorted({max(MIN_LOOK, number // 2), max(MIN_LOOK, number)})
        problems = {
            "looks in a study whose `expects` compares no methods": all(
                one.predicts for one in self.expects
            ),
            f"{looks[0]}, too few seeds for a test": looks[0] < MIN_LOOK,
            f"{looks[0]} of {number} seeds as the first look": (
                100 * looks[0] < MIN_LOOK_PERCENT * number
            ),
            "numbers that do not increase": any(after <= before for before, after in steps),
            f"a look after the end: {looks[-1]} of {number} seeds": looks[-1] > number,
            f"{looks[-1]} as the last look at {number} seeds": looks[-1] < number,
        }
        for problem in (text for text, is_so in problems.items() if is_so):
            raise SpecError(
                "looks",
                problem,
                f"increasing numbers of seeds, from at least {MIN_LOOK} and {MIN_LOOK_PERCENT} % of"
                f" the seeds to all {number} seeds, and `expects` with the comparisons that each"
                " look tests",
                f"write, for example, `looks: {example}` with at least {example[-1]} seeds, add"
                " `expects`, or remove `looks`",
            )

    def _testable(self) -> None:
        check_margins(self.short_context_margins)
        check_weights(self.expects, [base.known_as for base in self.base_models])
        if any(itertools.islice(self.comparisons(), MAX_COMPARISONS, None)):
            raise SpecError(
                "expects",
                f"more than {MAX_COMPARISONS:,} comparisons",
                f"at most {MAX_COMPARISONS:,}, one per pair of methods, length and base model",
                "list fewer methods or lengths in `expects`",
            )


def _in_words(*sections: tuple[str, BaseModel]) -> list[str]:
    return sorted(
        f"{where} {key} {value}"
        for where, section in sections
        for key, value in section.model_dump(
            mode="json", exclude_defaults=True, exclude=_REGISTERED_APART
        ).items()
    )


def _missing_value(key: str, variant: MethodEntry) -> SpecError:
    return SpecError(
        key,
        "nothing",
        f"a value for {variant.name}, which is trained",
        f"add `{key}` to the study or to this method",
    )


def _known_domains(where: str, given: Sequence[str], known: Sequence[str]) -> None:
    _refuse_repeats(where, given)
    require_known(where, given, "domains of the corpus", known)


def _check_shares(where: str, upsampling: Upsampling, known: Sequence[str]) -> None:
    if upsampling.long_share is not None and "short_keep_rate" in upsampling.model_fields_set:
        raise SpecError(
            f"{where}.short_keep_rate",
            "a value beside `long_share`, which also determines how many short documents are used",
            "one of the two keys",
            "remove `short_keep_rate` or `long_share`",
        )
    if (shares := upsampling.domain_shares) is None:
        return
    place, total = f"{where}.domain_shares", sum(shares.values())
    _known_domains(place, [*shares], known)
    if abs(total - 1) > 1e-6:
        raise SpecError(
            place, f"shares that sum to {total:.6g}", "shares that sum to 1", "change the shares"
        )


def _refuse_repeats(what: str, values: Sequence[object]) -> None:
    repeated = sorted(str(value) for value, count in Counter(values).items() if count > 1)
    if repeated:
        raise SpecError(
            what,
            f"{', '.join(repeated)} more than once",
            "distinct entries",
            "list each once, or give entries of the same method or model different labels",
        )
