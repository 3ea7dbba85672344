"""Compile a study into a plan: all computations (steps) with fingerprints, and all cells.

`compile_study` computes no step; it reads input data and weights only for their digests.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from lce_core.benchmarks import Benchmark, CellData, Kind
from lce_core.errors import SpecError, UnavailableError
from lce_core.methods import Method, check_local, check_sinks, own_layers
from lce_core.methods._training_positions import row_positions, why_not_skip
from lce_core.models import LanguageModel, read_config_json
from lce_core.registry import Plugin
from lce_core.rope import ContextLengths
from lce_core.statistics.estimates import INTERVALS
from lce_core.store.identity import ID_DIGITS
from lce_core.store.steps import Step, make_step
from lce_core.study.planned_data import Base, Data, Steps, Text, add_step
from lce_core.study.planned_training import PlannedTraining
from lce_core.study.published import check_sizes, published_weights
from lce_core.study.spec import BenchmarkEntry, MethodEntry, StudySpec
from lce_core.study.step_cost import StepCost
from lce_core.study.step_kinds import CellSpec, ChoiceSpec, SearchSpec, TrainingSpec, kind_named


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
    choice: str | None = None
    """Fingerprint of the step that chose a training setting."""
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
        needed: set[str] = set()
        waiting = [one.fingerprint for cell in cells for one in (cell.step, cell.expected) if one]
        while waiting:
            fingerprint = waiting.pop()
            if fingerprint not in needed:
                needed.add(fingerprint)
                waiting.extend(known[fingerprint].parents.values())
        steps = {name: step for name, step in self.steps.items() if name in needed}
        expected = {name: step for name, step in self.expected.items() if name in needed}
        return StudyPlan(self.study, steps, tuple(cells), expected)

    def to_json(self) -> dict[str, Any]:
        """Return the content of `plan.json`, from which the catalog reads cells and trainings."""
        trained = [s for s in self.steps.values() if issubclass(kind_named(s.kind), TrainingSpec)]
        waited_for = {
            fingerprint for c in self.cells if c.step for fingerprint in c.step.parents.values()
        }
        searches = [
            {"search": step.id, **step.axes}
            for step in self.steps.values()
            if step.kind == SearchSpec.kind
        ]
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
                for step in trained
            ],
            "choices": [
                {"choice": step.id, **step.axes, **step.spec}
                for step in self.steps.values()
                if step.kind == ChoiceSpec.kind
            ],
            **({"searches": searches} if searches else {}),
            "plugins": list(_plugins_json(self.study)),
        }


def _plugins_json(study: StudySpec) -> Iterator[dict[str, Any]]:
    for method in dict.fromkeys(type(entry.method) for entry in study.methods):
        yield {"part": "method", **_described(method)}
    profiles = ((type(entry.benchmark), entry.benchmark.profile) for entry in study.benchmarks)
    for benchmark, profile in dict.fromkeys(profiles):
        yield {
            "part": "benchmark",
            **_described(benchmark),
            "profile": profile,
            "profile_summary": benchmark.profiles[profile].summary,
        }


def _described(plugin: type[Plugin]) -> dict[str, str]:
    source = plugin.source
    return {
        "name": plugin.plugin_name,
        "summary": plugin.summary,
        "source": source.paper,
        "place": source.place,
    }


def compile_study(
    study: StudySpec,
    data_folders: Mapping[str, Path],
    model_folders: Mapping[str, Path] | None = None,
    where: str = "study",
) -> StudyPlan:
    """Compile a study into its steps and cells.

    Data folders are by the names that the user gave, model folders by base model or checkpoint.

    Raises:
      SpecError: if a method's parameters do not fit a base model or the lengths, or a folder has a
        model of other sizes.
      DataError: if the corpus, a data set or a weights folder exists but is damaged.
      UnavailableError: if a base model's folder cannot be read or has no weights file.
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
    bases = [Base.of(model, folders.get(model.known_as)) for model in study.base_models]
    study = study.model_copy(update={"base_models": tuple(base.model for base in bases)})
    for base in bases:
        model, folder = base.model, folders.get(base.model.known_as)
        if folder and model.pretraining() is None and not model.reads_config:
            check_sizes(model, read_config_json(folder), folder)
        published = {}
        for index, variant in enumerate(study.methods if base.absent is None else ()):
            place = f"{where}: methods[{index}]"
            _check(base.model, variant, study, place)
            target = study.target_of(variant)
            published[variant.name] = published_weights(base.model, variant, target, folders, place)
        text = Text(study, base, corpus)
        for seed in study.seeds:
            seed_plan = _SeedPlan(text, seed, data, published, steps, expected, data_folders)
            cells.extend(seed_plan.cells())
    return StudyPlan(study, steps, tuple(cells), expected)


@dataclass
class _SeedPlan:
    """Builds the cells for one base model and seed, and adds the cells' steps to the plan."""

    text: Text
    seed: int
    data: Mapping[tuple[int, str], Data]
    """Digests by (index of the benchmark in the study, task)."""
    published: Mapping[str, Data]
    """Digests of published weights, by variant name."""
    steps: Steps
    expected: Steps
    """Steps of the plan whose input data is missing; `steps` has the others."""
    folders: Mapping[str, Path]

    @cached_property
    def _training(self) -> PlannedTraining:
        steps = self.expected if self.text.corpus.absent else self.steps
        return PlannedTraining(self.text, self.seed, steps)

    def cells(self) -> Iterator[PlannedCell]:
        for variant in self.text.study.methods:
            asking = [
                (index, entry)
                for index, entry in enumerate(self.text.study.benchmarks)
                if entry.evaluates(variant)
            ]
            # A variant without benchmarks is trained only if another one needs its weights.
            if not asking:
                continue
            absent = self.text.base.absent
            checkpoint = None if absent else self._training.checkpoint(variant)
            search = None if absent else self._training.search(variant)
            sources = {"checkpoint": checkpoint, "search": search}
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
        study, base_model = self.text.study, self.text.base_model
        target = study.target_of(variant)
        reason = (
            self.text.base.absent
            or _unavailable(base_model, variant, entry, task, length, target)
            or _without_text(study, base_model, entry, task, length)
        )
        absent = self._absent(variant, data)
        trained = _trained_context(base_model)
        axes: dict[str, Any] = {
            "base_model": base_model.known_as,
            "method": variant.label,
            "frozen": not variant.is_tuned,
            "exact_attention": variant.method.exact_attention,
            "seed": self.seed,
            "benchmark": entry.benchmark.plugin_name,
            "task": task,
            "eval_length": length,
            "profile": entry.benchmark.profile,
            "train_length": study.train_length_of(variant) if variant.is_tuned else trained,
        }
        step: Step | None = None
        expected: Step | None = None
        if reason is None:
            steps = self.expected if absent else self.steps
            planned = self._cell_step(variant, entry, sources, axes, data.digest, steps)
            step, expected = (None, planned) if absent else (planned, None)
        checkpoint = None if self.text.corpus.absent else sources["checkpoint"]
        return PlannedCell(
            **axes,
            target_context=target,
            method_name=variant.method.plugin_name,
            kind=entry.benchmark.kind,
            **_training_of(study, variant, checkpoint, self._training.costs),
            step=step,
            checkpoint=checkpoint,
            unavailable=reason or absent,
            expected=expected,
        )

    def _cell_step(
        self,
        variant: MethodEntry,
        entry: BenchmarkEntry,
        sources: Mapping[str, Step | None],
        axes: Mapping[str, Any],
        data: str | None,
        steps: Steps,
    ) -> Step:
        study = self.text.study
        spec = CellSpec(
            base_model=self.text.base_model,
            weights=self.text.weights,
            method=variant.method,
            target_context=study.target_of(variant),
            benchmark=entry.benchmark,
            task=axes["task"],
            eval_length=axes["eval_length"],
            evaluation=study.evaluation.inference(),
            intervals=INTERVALS,
            seed=self.seed if entry.benchmark.seeded else None,
            data=data,
            published=self.published[variant.name].digest,
        )
        if spec.data is not None:
            axes = {**axes, **self._expected(entry.benchmark, axes)}
        parents = {"held_out": self.text.held_out(steps)}
        parents |= {role: source for role, source in sources.items() if source is not None}
        names = (axes["base_model"], variant.name, f"s{self.seed}")
        places = (axes["benchmark"], axes["task"], axes["eval_length"])
        return add_step(
            steps, make_step(spec, "-".join(map(str, (*names, *places))), parents, axes)
        )

    def _absent(self, variant: MethodEntry, data: Data) -> str | None:
        if self.text.base.absent:
            return None  # `_cell` already reports the missing base model
        return self.text.corpus.absent or data.absent or self.published[variant.name].absent

    def _expected(self, benchmark: Benchmark, axes: Mapping[str, Any]) -> dict[str, float]:
        base_model, folders = self.text.base_model, self.folders
        cell = CellData(base_model, axes["task"], axes["eval_length"], folders)
        try:
            known = benchmark.data_sequences(cell)
        except UnavailableError:  # part of the data is missing; the cell reports it when it runs
            known = None
        if known is None:
            return {}
        return {"num_tokens": known.num_tokens, "mean_length": known.mean_length}


def _check(base_model: LanguageModel, variant: MethodEntry, study: StudySpec, where: str) -> None:
    trained, target = base_model.geometry.trained_context, study.target_of(variant)
    lengths = ContextLengths(trained, target, request=target)
    try:
        variant.method.check(base_model.geometry, lengths)
        # Tables for all layers may be expensive (`harpe` searches bases), so check only own layers.
        _check_own_layers(variant.method, base_model, lengths)
        if base_model.local is not None:
            check_local(variant.method, pose=variant.train_positions == "pose")
        if base_model.has_sinks:
            num_layers = base_model.shape.num_layers
            check_sinks(variant.method, base_model.geometry, lengths, num_layers)
    except SpecError as error:
        place = f"{where} ({base_model.known_as}): {error.where}"
        raise error.within(place) from None
    if variant.tuned:
        _check_positions(base_model, variant, study, lengths, where)
    source = study.weights_source_of(variant)
    for key, other in (("start_from", study.start_of(variant)), ("weights_of", source)):
        if other and _adds_weights(other, base_model):
            raise SpecError(
                f"{where}.{key}",
                f"{other.name}, whose method adds trained weights to those of the base model",
                "a variant that trains only the weights of the base model",
                f"name another variant, or remove `{key}`",
            )
    if source and _adds_weights(variant, base_model):
        raise SpecError(
            f"{where}.weights_of",
            f"weights of {source.name} for {variant.method.plugin_name}, which needs its own",
            "a method that works with the weights of the base model alone",
            "write `tuned: true` instead, or choose another method",
        )


def _check_own_layers(method: Method, base_model: LanguageModel, lengths: ContextLengths) -> None:
    """Refuse a method that changes some layers but none of this model's."""
    num_layers = base_model.shape.num_layers
    own = own_layers(method, base_model.geometry, lengths, num_layers)
    if type(method).layer is not Method.layer and not any(own):
        raise SpecError(
            f"{method.plugin_name}.layer",
            f"no layer that differs among the model's {num_layers}",
            "at least one layer with frequencies or attention of its own",
            "change the parameters that choose the layers",
        )


def _check_positions(
    base_model: LanguageModel,
    variant: MethodEntry,
    study: StudySpec,
    lengths: ContextLengths,
    where: str,
) -> None:
    """Refuse positions that the variant's training rows cannot have."""
    method, row = variant.method, replace(lengths, request=study.train_length_of(variant))
    try:
        own = row_positions(method, row, seed=0, pose=False) is not None
    except SpecError as error:
        raise error.within(f"{where} ({base_model.known_as}): {error.where}") from None
    pose = variant.train_positions == "pose"
    if not (own or pose):
        return
    why = why_not_skip(method, base_model.geometry, lengths, base_model.shape.num_layers)
    if pose and method.stages(lengths):
        why = "trains in several runs"
    if pose and own:
        why = "draws positions of its own"
    if why is not None:
        raise SpecError(
            f"{where}.train_positions" if pose else f"{where}: {method.plugin_name}",
            f"{'pose' if pose else 'training_positions'} for {method.plugin_name}, which {why}",
            "a method with one training run that only changes frequencies shared by all heads",
            "leave out `train_positions`, or choose another method"
            if pose
            else "return None from training_positions, or remove the attention scheme",
        )


def _adds_weights(variant: MethodEntry, base_model: LanguageModel) -> bool:
    method = variant.method
    return bool(method.rotary or method.insertion(base_model.geometry))


def _unavailable(
    base_model: LanguageModel,
    variant: MethodEntry,
    entry: BenchmarkEntry,
    task: str,
    length: int,
    target: int,
) -> str | None:
    trained = base_model.geometry.trained_context
    lengths = ContextLengths(trained, target, request=length)
    reach = variant.method.reach(base_model.geometry, lengths)
    if reach is not None and length > reach:
        return f"eval length {length} exceeds the {reach} tokens that {variant.label} supports"
    return entry.benchmark.unavailable(base_model, task, length)


def _without_text(
    study: StudySpec, base_model: LanguageModel, entry: BenchmarkEntry, task: str, length: int
) -> str | None:
    """Return why the study's held-out text cannot fill a cell's length; None if it might."""
    domain = entry.benchmark.held_out_domain(task)
    known, most = study.corpus.domains(), study.evaluation.held_out_tokens
    if domain is not None and domain not in known:
        return (
            f"the corpus {study.corpus.plugin_name} has no domain {domain!r}, only"
            f" {', '.join(known)}: change `domains`"
        )
    needed = entry.benchmark.excerpt_tokens(base_model, task, length)
    if needed > most:
        return (
            f"eval length {length} needs {needed} successive tokens of held-out text;"
            f" evaluation.held_out_tokens is {most}: raise it"
        )
    return None


def _training_of(
    study: StudySpec,
    variant: MethodEntry,
    checkpoint: Step | None,
    costs: Mapping[str, StepCost],
) -> dict[str, Any]:
    variant = study.weights_source_of(variant) or variant
    if not variant.tuned:
        return {}
    found: dict[str, Any] = {
        "choice": checkpoint.parents.get(ChoiceSpec.kind) if checkpoint else None
    }
    if cost := costs.get(variant.name):
        found |= {"train_tokens": cost.tokens, "train_flops": cost.flops}
    if not (variant.at_best and study.tune is not None and study.tune.field == "learning_rate"):
        found["learning_rate"] = study.training_of(variant).learning_rate
    return found


def _trained_context(model: LanguageModel) -> int | None:
    return model.geometry.trained_context if model.is_known else None


def _cell_json(cell: PlannedCell, waits_for_data: bool) -> dict[str, Any]:
    axes = {
        name: getattr(cell, name)
        for name in PlannedCell.__dataclass_fields__
        if name not in ("step", "checkpoint", "unavailable", "expected", "choice", "settled")
    }
    step, checkpoint = cell.step, cell.checkpoint
    return {
        **axes,
        "fingerprint": step.fingerprint if step else None,
        "cell": step.id if step else None,
        "folder": step.folder if step else None,
        "checkpoint": checkpoint.id if checkpoint else None,
        "choice": cell.choice and cell.choice[:ID_DIGITS],
        "blocked_by": [parent[:ID_DIGITS] for parent in step.parents.values()] if step else [],
        "unavailable": cell.unavailable,
        "waits_for_data": waits_for_data,
        **({"settled": True} if cell.settled else {}),
    }
