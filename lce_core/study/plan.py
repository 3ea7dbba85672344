"""Compile a study into a plan: all computations (steps) with fingerprints, and all cells.

`compile_study` computes no step; it reads input data and weights only for their digests.

A tuned variant is trained by a chain of runs: one per stage of its method, then a final run. The
chain starts from the base model's weights or, with `start_from`, from those of another tuned
variant. Identical steps of several variants are in the plan once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lce_core.benchmarks import BENCHMARKS, Benchmark, CellData, Kind
from lce_core.corpora import StreamedCorpus
from lce_core.errors import SpecError, UnavailableError
from lce_core.models import (
    LanguageModel,
    read_config_json,
    require_model,
    require_whole,
    weights_digest,
)
from lce_core.recipe import Training, Upsampling
from lce_core.rope import ContextLengths
from lce_core.statistics.estimates import INTERVALS
from lce_core.store.identity import ID_DIGITS
from lce_core.store.steps import Step, closure, make_step
from lce_core.study.cost import (
    StepCost,
    finetune_cost,
    pretraining_cost,
    steps_for_flops,
    steps_for_tokens,
    total_cost,
)
from lce_core.study.plan_checks import (
    Data,
    check_sizes,
    check_variant,
    published_weights,
    why_unavailable,
)
from lce_core.study.spec import BenchmarkEntry, MethodEntry, StudySpec
from lce_core.study.step_kinds import (
    BaseSpec,
    CellSpec,
    ChoiceSpec,
    FinetuneSpec,
    HeldOutSpec,
    RowsSpec,
    SearchSpec,
    StepSpec,
    Tokenizer,
    TokensSpec,
    TrainingSpec,
    kind_named,
)
from lce_core.study.tuning import BEST, changed

Steps = dict[str, Step]
"""Planned steps by fingerprint, parents before children."""


@dataclass(frozen=True)
class PlannedCell:
    """A cell: one benchmark task at one length for one variant of a base model and one seed."""

    base_model: str
    method: str
    frozen: bool
    """True if the weights are the base model's own, without fine-tuning."""
    exact_attention: bool
    """True if every token attends to all earlier tokens."""
    seed: int
    benchmark: str
    task: str
    eval_length: int
    profile: str
    train_length: int | None
    """Tokens with which the evaluated weights were last trained; None if unknown. A training row's
    length, or the target context of published weights, or the trained context of a frozen
    variant."""
    target_context: int
    """Tokens to which the method extends the model."""
    step: Step | None
    """The step that evaluates the cell; None if it cannot be computed (`unavailable`)."""
    checkpoint: Step | None
    """Training step of the weights; None if published, or if text or base model is missing."""
    unavailable: str | None
    """Why the cell cannot be computed."""
    method_name: str = ""
    """Registered name, which entries with different labels can share."""
    kind: Kind | None = None
    learning_rate: float | None = None
    """Peak of the fine-tuning; None without one, or if the step `choice` determines it."""
    train_tokens: int | None = None
    """Tokens of the method's own training runs; None without fine-tuning."""
    train_flops: float | None = None
    """FLOPs of the method's own training runs by the cost model."""
    expected: Step | None = None
    """Step of a cell whose input data is missing (see `StudyPlan.expected`)."""
    settled: bool = False
    """True if looks have settled all comparisons of the method, so that this seed is not needed."""


@dataclass(frozen=True)
class StudyPlan:
    """All steps and cells of a study."""

    study: StudySpec
    steps: dict[str, Step]
    """Steps by fingerprint, parents before children."""
    cells: tuple[PlannedCell, ...]
    expected: dict[str, Step] = field(default_factory=dict)
    """Steps whose input data is missing, by a temporary fingerprint without the data's digest. lce
    predicts their cost but cannot compute them."""

    @cached_property
    def known_models(self) -> frozenset[str]:
        """Base models whose configuration is on this machine or was fetched."""
        return frozenset(one.known_as for one in self.study.base_models if one.is_known)

    def waits_for_data(self, cell: PlannedCell) -> bool:
        return cell.expected is not None or cell.base_model not in self.known_models

    def with_cells(self, cells: Sequence[PlannedCell]) -> StudyPlan:
        """Return the plan with only `cells` and the steps, expected ones too, that they need."""
        known = {**self.expected, **self.steps}
        read = [one.fingerprint for cell in cells for one in (cell.step, cell.expected) if one]
        needed = closure(read, lambda fingerprint: known[fingerprint].parents.values())
        steps = {name: step for name, step in self.steps.items() if name in needed}
        expected = {name: step for name, step in self.expected.items() if name in needed}
        return StudyPlan(self.study, steps, tuple(cells), expected)

    def _of_kind(self, kind: type[StepSpec]) -> Iterator[Step]:
        return (step for step in self.steps.values() if issubclass(kind_named(step.kind), kind))

    def to_json(self) -> dict[str, Any]:
        """Return the content of `plan.json`, from which the catalog reads cells and trainings."""
        waited_for = {
            fingerprint for c in self.cells if c.step for fingerprint in c.step.parents.values()
        }
        searches = [{"search": step.id, **step.axes} for step in self._of_kind(SearchSpec)]
        contexts = {m.known_as: _trained_context(m) for m in self.study.base_models}
        notes = {m.known_as: m.note for m in self.study.base_models if m.note}
        return {
            "study": self.study.study,
            "hypothesis": self.study.hypothesis,
            "expects": list(self.study.comparisons(contexts)),
            "design": self.study.design,
            **({"looks": list(self.study.looks)} if self.study.looks else {}),
            **({"match": self.study.match} if self.study.match != "tokens" else {}),
            "target_context": self.study.target_context,
            "base_contexts": contexts,
            **({"base_notes": notes} if notes else {}),
            "cells": [_cell_json(cell, self.waits_for_data(cell)) for cell in self.cells],
            "steps": [step.id for step in self.steps.values()],
            "kinds": {s.id: s.kind for s in self.steps.values() if s.fingerprint in waited_for},
            "trainings": [
                {
                    "fingerprint": step.fingerprint,
                    "checkpoint": step.id,
                    "folder": step.folder,
                    "kind": step.kind,
                    **{key: step.axes.get(key) for key in ("base_model", "method", "seed")},
                }
                for step in self._of_kind(TrainingSpec)
            ],
            "choices": [
                {"choice": step.id, **step.axes, **step.spec} for step in self._of_kind(ChoiceSpec)
            ],
            **({"searches": searches} if searches else {}),
            "plugins": list(_plugins_json(self.study)),
        }


def _plugins_json(study: StudySpec) -> Iterator[dict[str, Any]]:
    methods = ((type(entry.method), None) for entry in study.methods)
    benchmarks = ((type(entry.benchmark), entry.benchmark.profile) for entry in study.benchmarks)
    for plugin, profile in dict.fromkeys([*methods, *benchmarks]):
        about = {"name": plugin.plugin_name, "summary": plugin.summary}
        about |= {"source": plugin.source.paper, "place": plugin.source.place}
        if issubclass(plugin, Benchmark) and profile is not None:
            about |= {"profile": profile, "profile_summary": plugin.profiles[profile].summary}
        yield {"part": "method" if profile is None else "benchmark", **about}


def _with_weights(model: LanguageModel, folder: Path | None) -> tuple[LanguageModel, Data]:
    """Return the model with its configuration, unless that is missing, and its weights.

    Weights of the hub have no digest, because a revision identifies them.
    """
    try:
        known = model.resolved(folder)
    except UnavailableError as error:
        return model, Data(None, str(error))
    if folder is None:
        return known, Data(None, None)
    # A model of the user's own has all its files in the folder.
    (require_model if known.reads_config else require_whole)(folder)
    return known, Data(weights_digest(folder), None)


def compile_study(
    study: StudySpec,
    data_folders: Mapping[str, Path],
    model_folders: Mapping[str, Path] | None = None,
    where: str = "study",
) -> StudyPlan:
    """Compile a study into its steps and cells.

    Data folders are by the names that the user gave, model folders by base model or checkpoint.
    """
    steps: Steps = {}
    expected: Steps = {}
    cells: list[PlannedCell] = []
    corpus = Data.of(partial(study.corpus.digest, data_folders))
    data = {
        (index, task): Data.of(partial(entry.benchmark.digest, task, data_folders))
        for index, entry in enumerate(study.benchmarks)
        for task in entry.tasks
    }
    folders = model_folders or {}
    bases = [_with_weights(model, folders.get(model.known_as)) for model in study.base_models]
    study = study.model_copy(update={"base_models": tuple(model for model, _ in bases)})
    for model, weights in bases:
        folder = folders.get(model.known_as)
        if folder and model.pretraining() is None and not model.reads_config:
            check_sizes(model, read_config_json(folder), folder)
        published = {}
        for index, variant in enumerate(study.methods if weights.absent is None else ()):
            place = f"{where}: methods[{index}]"
            check_variant(model, variant, study, place)
            target = study.target_of(variant)
            published[variant.name] = published_weights(model, variant, target, folders, place)
        for seed in study.seeds:
            inputs = (corpus, data, published, data_folders)
            cells.extend(_Planner(study, model, weights, seed, *inputs, steps, expected).cells())
    return StudyPlan(study, steps, tuple(cells), expected)


@dataclass
class _Planner:
    """Plans the cells of one base model and seed, and adds their steps to the plan."""

    study: StudySpec
    model: LanguageModel
    weights: Data
    """The base model's; `absent` if its configuration is missing."""
    seed: int
    corpus: Data
    data: Mapping[tuple[int, str], Data]
    """Data sets by (index of the benchmark in the study, task)."""
    published: Mapping[str, Data]
    """Published weights, by variant name."""
    folders: Mapping[str, Path]
    steps: Steps
    expected: Steps
    trial_axes: Mapping[str, Any] = field(default_factory=dict)
    """Axes of the trials of `tune`."""
    costs: dict[str, StepCost] = field(default_factory=dict)
    """Cost of each tuned variant's own runs, by name, without the weights that they start from."""
    checkpoints: dict[str, Step | None] = field(default_factory=dict)

    @property
    def _of_text(self) -> Steps:
        """The plan's steps, or the expected ones if the corpus is missing."""
        return self.expected if self.corpus.absent else self.steps

    def cells(self) -> Iterator[PlannedCell]:
        for variant in self.study.methods:
            asking = [
                (index, entry)
                for index, entry in enumerate(self.study.benchmarks)
                if entry.evaluates(variant)
            ]
            # A variant without benchmarks is trained only if another one needs its weights.
            if not asking:
                continue
            known = self.weights.absent is None
            sources = {
                "checkpoint": self._checkpoint(variant) if known else None,
                "search": self._search(variant) if known else None,
            }
            for index, entry in asking:
                for task in entry.tasks:
                    data = self.data[index, task]
                    for length in entry.lengths:
                        yield self._cell(variant, sources, entry, data, task, length)

    def _cell(
        self,
        variant: MethodEntry,
        sources: Mapping[str, Step | None],
        entry: BenchmarkEntry,
        data: Data,
        task: str,
        length: int,
    ) -> PlannedCell:
        study, model, absent = self.study, self.model, None
        reason = self.weights.absent or why_unavailable(study, model, variant, entry, task, length)
        if not self.weights.absent:
            absent = self.corpus.absent or data.absent or self.published[variant.name].absent
        trained = study.train_length_of(variant) if variant.is_tuned else _trained_context(model)
        axes = self._axes(
            variant,
            exact_attention=variant.method.exact_attention,
            benchmark=entry.benchmark.plugin_name,
            task=task,
            eval_length=length,
            profile=entry.benchmark.profile,
            train_length=trained,
        )
        step: Step | None = None
        if reason is None:
            spec = self._cell_spec(
                variant,
                entry.benchmark,
                task,
                length,
                seed=self.seed if entry.benchmark.seeded else None,
                data=data.digest,
                published=self.published[variant.name].digest,
            )
            steps = self.expected if absent else self.steps
            parents = {"held_out": self._held_out(steps), **sources}
            counted = {} if data.digest is None else self._counted(entry.benchmark, task, length)
            name = (variant.name, f"s{self.seed}", entry.benchmark.plugin_name, task, length)
            step = self._add(spec, name, parents, axes | counted, steps)
        checkpoint = None if self.corpus.absent else sources["checkpoint"]
        return PlannedCell(
            **axes,
            target_context=study.target_of(variant),
            method_name=variant.method.plugin_name,
            kind=entry.benchmark.kind,
            **self._training_of(variant),
            step=None if absent else step,
            checkpoint=checkpoint,
            unavailable=reason or absent,
            expected=step if absent else None,
        )

    def _cell_spec(
        self, variant: MethodEntry, benchmark: Benchmark, task: str, length: int, **inputs: Any
    ) -> CellSpec:
        return CellSpec(
            **self._evaluation(variant),
            benchmark=benchmark,
            task=task,
            eval_length=length,
            intervals=INTERVALS,
            **inputs,
        )

    def _evaluation(self, variant: MethodEntry) -> dict[str, Any]:
        return {
            "base_model": self.model,
            "weights": self.weights.digest,
            "method": variant.method,
            "target_context": self.study.target_of(variant),
            "evaluation": self.study.evaluation.inference(),
        }

    def _counted(self, benchmark: Benchmark, task: str, length: int) -> dict[str, float]:
        try:
            known = benchmark.data_sequences(CellData(self.model, task, length, self.folders))
        except UnavailableError:  # part of the data is missing; the cell reports it when it runs
            return {}
        if known is None:
            return {}
        return {"num_tokens": known.num_tokens, "mean_length": known.mean_length}

    def _training_of(self, variant: MethodEntry) -> dict[str, Any]:
        study = self.study
        variant = study.weights_source_of(variant) or variant
        if not variant.tuned:
            return {}
        found: dict[str, Any] = {}
        if cost := self.costs.get(variant.name):
            found |= {"train_tokens": cost.tokens, "train_flops": cost.flops}
        if not (variant.at_best and study.tune and study.tune.field == "learning_rate"):
            found["learning_rate"] = study.training_of(variant).learning_rate
        return found

    def _checkpoint(self, variant: MethodEntry) -> Step | None:
        """Add and return the training step that produces a variant's weights.

        None if the study does not train them: they are published, or a base model's.
        """
        if variant.checkpoint is not None:
            return None
        if source := self.study.weights_source_of(variant):
            return self._checkpoint(source)
        if variant.name not in self.checkpoints:
            start = self.study.start_of(variant)
            base = self._pretrained() if start is None else self._checkpoint(start)
            self.checkpoints[variant.name] = self._chain(variant, base) if variant.tuned else base
        return self.checkpoints[variant.name]

    def _pretrained(self) -> Step | None:
        recipe = self.model.pretraining()
        if recipe is None:
            return None
        training, length = recipe.training, recipe.sequence_length
        if training.document_masks != "none":
            raise SpecError(
                f"{self.model.plugin_name}.pretraining",
                f"document_masks: {training.document_masks}",
                "none, because only the training of methods masks documents",
                "remove `document_masks` from the base model's pretraining",
            )
        [num_steps] = steps_for_tokens(recipe.num_tokens, (), training.tokens_per_step)
        spec = BaseSpec(
            base_model=self.model,
            training=training,
            num_steps=num_steps,
            row_length=length,
            **self._seeds(),
        )
        parents = {"rows": self._rows(length, num_steps, training, self.study.upsampling)}
        return self._add(spec, (f"s{self.seed}",), parents, self._training_axes(None))

    def _search(self, variant: MethodEntry) -> Step | None:
        """Add and return the step that searches for a variant's parameters; None without a search.

        It evaluates the weights with which the training starts, or the variant's if untrained.
        """
        if variant.method.open_search() is None:
            return None
        spec = SearchSpec(**self._evaluation(variant))
        start = self.study.start_of(variant)
        untrained = start is None and variant.tuned
        weights = self._pretrained() if untrained else self._checkpoint(start or variant)
        parents = {"validation": self._validation(), "checkpoint": weights}
        axes = self._axes(variant, method_name=variant.method.plugin_name)
        return self._add(spec, (variant.name, f"s{self.seed}"), parents, axes)

    def _chain(self, variant: MethodEntry, base: Step | None) -> Step:
        study, model = self.study, self.model
        target, training = study.target_of(variant), study.training_of(variant)
        stages = variant.method.stages(
            ContextLengths(model.geometry.trained_context, target, target)
        )
        runs = [
            (f"{variant.name}-stage{number}", stage.method, stage.context, stage.context)
            for number, stage in enumerate(stages, start=1)
        ]
        runs.append((variant.name, variant.method, target, study.train_length_of(variant)))
        choice = self._choice(variant) if variant.at_best else None
        search = self._search(variant)
        per_step = [
            finetune_cost(model, method, context, training.tokens_per_step, row_length)
            for _, method, context, row_length in runs
        ]
        counts = self._num_steps(variant, [stage.share for stage in stages], per_step)
        self.costs[variant.name] = total_cost(
            [cost.scaled(count) for cost, count in zip(per_step, counts, strict=True)]
        )
        for (name, method, context, row_length), num_steps in zip(runs, counts, strict=True):
            spec = FinetuneSpec(
                base_model=model,
                weights=self.weights.digest,
                method=method,
                target_context=context,
                training=training,
                num_steps=num_steps,
                row_length=row_length,
                **self._seeds(),
                train_positions=variant.train_positions,
            )
            rows = self._rows(row_length, num_steps, training, study.upsampling_of(variant))
            parents = {"rows": rows, "base": base, "choice": choice}
            if method == variant.method:
                parents["search"] = search
            axes = {**self._training_axes(variant.label), **self.trial_axes}
            base = self._add(spec, (name, f"s{self.seed}"), parents, axes)
        assert base is not None, "the last run has a step"
        return base

    def _num_steps(
        self, variant: MethodEntry, shares: Sequence[float], per_step: Sequence[StepCost]
    ) -> list[int]:
        tokens = self.study.train_tokens_of(variant)
        if self.study.match == "tokens":
            return steps_for_tokens(tokens, shares, per_step[0].tokens)
        budget = pretraining_cost(self.model, tokens, self.study.target_context)
        return steps_for_flops(budget.flops, shares, [cost.flops for cost in per_step])

    def _choice(self, variant: MethodEntry) -> Step:
        """Add a trial for each value, its scores on validation text and the choice."""
        study, tune, validation = self.study, self.study.tune, self._validation()
        assert tune is not None, "only `tune` adds entries that train at their best value"
        target, training = study.target_of(variant), study.training_of(variant)
        trial_axes = {
            "chosen_for": variant.label,
            "validation": validation.fingerprint,
            "window": target,
        }
        of_trials = replace(self, seed=tune.seed, trial_axes=trial_axes, costs={}, checkpoints={})
        domains = tune.domains or study.corpus.domains()
        # No choice reads perplexity_last, so `last` is 1, which allows short windows.
        settings = {"profile": "fast", "domains": domains, "last": 1, "store_nll": False}
        benchmark = BENCHMARKS.load("perplexity").model_validate(settings)
        label = variant.label.removesuffix(BEST)
        scored = {}
        for number, value in enumerate(tune.values):
            trial = variant.model_copy(
                update={
                    "label": f"{label}_trial{number + 1}",
                    "training": changed(training, tune.field, value),
                    "train_tokens": tune.train_tokens or variant.train_tokens,
                    "at_best": False,
                }
            )
            checkpoint = of_trials._checkpoint(trial)
            assert checkpoint is not None, "a trial is trained"
            for domain in domains:
                axes = self._axes(
                    trial,
                    chosen_for=checkpoint.axes["chosen_for"],
                    seed=checkpoint.axes["seed"],
                    benchmark=benchmark.plugin_name,
                    task=domain,
                    eval_length=target,
                )
                scored[ChoiceSpec.role(number, domain)] = self._add(
                    self._cell_spec(trial, benchmark, domain, target),
                    (trial.name, f"s{axes['seed']}", "validation", domain, target),
                    {"held_out": validation, "checkpoint": checkpoint},
                    axes,
                )
        axes = self._axes(
            variant,
            method_name=variant.method.plugin_name,
            common_method=label,
            common_value=getattr(training, tune.field),
            seed=tune.seed,
        )
        spec = ChoiceSpec(field=tune.field, values=[*tune.values], domains=[*domains])
        return self._add(spec, (variant.name,), scored, axes)

    def _axes(self, variant: MethodEntry, **further: Any) -> dict[str, Any]:
        return {
            "base_model": self.model.known_as,
            "method": variant.label,
            "frozen": not variant.is_tuned,
            "seed": self.seed,
            **further,
        }

    def _training_axes(self, method: str | None) -> dict[str, Any]:
        return {
            "base_model": self.model.known_as,
            "method": method,
            "seed": self.seed,
            "held_out": self._held_out(self._of_text).fingerprint,
        }

    def _seeds(self) -> dict[str, int]:
        """Return the fields `seed` (initial weights) and, if it differs, `data_seed`."""
        study = self.study
        if study.seeds_vary == "all" or self.seed == study.seeds[0]:
            return {"seed": self.seed}
        if study.seeds_vary == "data":
            return {"seed": study.seeds[0], "data_seed": self.seed}
        return {"seed": self.seed, "data_seed": study.seeds[0]}

    def _rows(
        self, row_length: int, num_steps: int, training: Training, upsampling: Upsampling
    ) -> Step:
        seeds = self._seeds()
        seed = seeds.get("data_seed", seeds["seed"])
        spec = RowsSpec(
            **self._text(),
            row_length=row_length,
            num_rows=num_steps * training.tokens_per_step // row_length,
            upsampling=upsampling,
            seed=seed,
            leaves_out_copies=self.study.corpus.leaves_out_copies,
            packing=training.packing,
        )
        return self._add_text(spec, row_length, f"s{seed}")

    def _held_out(self, steps: Steps) -> Step:
        spec = HeldOutSpec(
            **self._text(),
            tokens_per_domain=self.study.evaluation.held_out_tokens,
            document_tokens=self.study.evaluation.held_out_document_tokens,
        )
        return self._add_text(spec, steps=steps)

    def _validation(self) -> Step:
        """Add the step that tokenizes validation text, which shares no document with `held_out`."""
        tune = self.study.tune
        changes = {
            "after_tokens": self.study.evaluation.held_out_tokens,
            "tokens_per_domain": self.study.validation_tokens,
            # Trials score each domain; a search takes the texts of the domains that have any.
            "needed": ([*tune.domains] or None) if tune else [],
        }
        spec = HeldOutSpec.parse({**self._held_out(self._of_text).spec, **changes})
        return self._add_text(spec, "validation")

    def _text(self) -> dict[str, Any]:
        model = self.model
        tokenizer = Tokenizer(
            name=model.plugin_name,
            version=model.plugin_version,
            weights=self.weights.digest,
            parameters=model.tokenizer_parameters(),
        )
        return {"corpus": self.study.corpus, "digest": self.corpus.digest, "tokenizer": tokenizer}

    def _add_text(self, spec: StepSpec, *names: object, steps: Steps | None = None) -> Step:
        """Add a step that reads text, and for a streamed corpus the step that writes its shards."""
        axes = {"base_model": self.model.known_as}
        corpus, shards = (self.study.corpus.plugin_name,), {}
        if isinstance(self.study.corpus, StreamedCorpus):
            tokens = TokensSpec(**self._text())
            shards[tokens.kind] = self._add(tokens, (), {}, axes, steps, corpus)
        return self._add(spec, names, shards, axes, steps, corpus)

    def _add(
        self,
        spec: StepSpec,
        names: Sequence[object],
        parents: Mapping[str, Step | None],
        axes: Mapping[str, Any],
        steps: Steps | None = None,
        before: Sequence[str] = (),
    ) -> Step:
        """Add and return a step, named `before`, the base model and `names`, joined by hyphens.

        `steps` is where it belongs, by default to the steps that need only text.
        """
        steps = self._of_text if steps is None else steps
        name = "-".join(map(str, (*before, self.model.known_as, *names)))
        present = {role: parent for role, parent in parents.items() if parent is not None}
        step = make_step(spec.kind, spec.version, spec.identity(), name, present, axes)
        return steps.setdefault(step.fingerprint, step)


def _trained_context(model: LanguageModel) -> int | None:
    return model.geometry.trained_context if model.is_known else None


def _cell_json(cell: PlannedCell, waits_for_data: bool) -> dict[str, Any]:
    axes = {
        name: getattr(cell, name)
        for name in PlannedCell.__dataclass_fields__
        if name not in ("step", "checkpoint", "unavailable", "expected", "settled")
    }
    step, checkpoint = cell.step, cell.checkpoint
    choice = checkpoint.parents.get(ChoiceSpec.kind) if checkpoint else None
    return {
        **axes,
        "fingerprint": step.fingerprint if step else None,
        "cell": step.id if step else None,
        "folder": step.folder if step else None,
        "checkpoint": checkpoint.id if checkpoint else None,
        "choice": choice and choice[:ID_DIGITS],
        "blocked_by": [parent[:ID_DIGITS] for parent in step.parents.values()] if step else [],
        "unavailable": cell.unavailable,
        "waits_for_data": waits_for_data,
        **({"settled": True} if cell.settled else {}),
    }
