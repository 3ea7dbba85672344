"""From a study to its steps: every cell, every training run, every data set, with identities.

`compile_study` multiplies the axes out and computes nothing but fingerprints (and the digest of the
corpus). `lce_core.progress` compares the result with a store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lce_core.errors import SpecError, UnavailableError
from lce_core.identity import SHORT
from lce_core.models import BaseModel
from lce_core.rope import ContextLengths
from lce_core.spec import BenchmarkEntry, MethodEntry, StudySpec, Training
from lce_core.steps import Step, make_step
from lce_core.weights_digest import weights_digest


@dataclass(frozen=True)
class PlannedCell:
    """One row of the study's matrix: a cell to compute, or the reason why it cannot be."""

    base_model: str
    method: str
    frozen: bool
    exact_attention: bool
    seed: int
    benchmark: str
    task: str
    eval_length: int
    profile: str
    train_length: int
    """Context in tokens at which the evaluated weights were last trained."""
    step: Step | None
    checkpoint: Step | None
    """The training step evaluated; None for weights from the hub."""
    unavailable: str | None


@dataclass(frozen=True)
class StudyPlan:
    """All steps of a study in an order in which parents come first."""

    study: StudySpec
    steps: dict[str, Step]
    cells: tuple[PlannedCell, ...]

    def to_json(self) -> dict[str, Any]:
        """What the store keeps of a plan, for the catalog: names, axes and ids of all cells."""
        trained = [step for step in self.steps.values() if step.kind in ("base", "finetune")]
        models = self.study.base_models
        return {
            "study": self.study.study,
            "hypothesis": self.study.hypothesis,
            "target_context": self.study.target_context,
            "base_contexts": {m.plugin_name: m.geometry.trained_context for m in models},
            "cells": [_cell_json(cell) for cell in self.cells],
            "trainings": [
                {
                    "fingerprint": step.fingerprint,
                    "checkpoint": step.short,
                    "folder": step.folder,
                    "kind": step.kind,
                    **{key: step.axes.get(key) for key in ("base_model", "method", "seed")},
                }
                for step in trained
            ],
        }


def compile_study(
    study: StudySpec,
    data_folders: Mapping[str, Path],
    model_folders: Mapping[str, Path] | None = None,
    where: str = "study",
) -> StudyPlan:
    """All steps and cells of a study.

    Args:
      study: what to compute.
      data_folders: folders of data sets named by the user, for their digests.
      model_folders: folders of base models' weights that take the place of the hub.
      where: the study's file, for errors.

    Raises:
      SpecError: a method's parameters do not fit a base model or the lengths.
      DataError: the corpus is there but cannot be read.
    """
    steps: dict[str, Step] = {}
    cells: list[PlannedCell] = []
    corpus = _Data.of(lambda: study.corpus.digest(data_folders))
    data = {
        (entry.benchmark.plugin_name, task): _Data.of(
            partial(entry.benchmark.digest, data_folders, task)
        )
        for entry in study.benchmarks
        for task in entry.tasks
    }
    for base_model in study.base_models:
        folder = (model_folders or {}).get(base_model.plugin_name)
        weights = {} if folder is None else {"weights": weights_digest(folder)}
        for index, row in enumerate(study.methods):
            _check(base_model, row, study.target_context, f"{where}: methods[{index}]")
        for seed in study.seeds:
            block = _Block(study, base_model, seed, corpus, data, weights, steps)
            cells.extend(block.cells())
    return StudyPlan(study, steps, tuple(cells))


@dataclass(frozen=True)
class _Data:
    """The digest of what a plug-in reads from this machine, or why it is out of reach."""

    digest: str | None
    absent: str | None

    @classmethod
    def of(cls, digest: Callable[[], str | None]) -> _Data:
        try:
            return cls(digest(), None)
        except UnavailableError as error:
            return cls(None, str(error))


@dataclass
class _Block:
    """The steps of one base model and seed."""

    study: StudySpec
    base_model: BaseModel
    seed: int
    corpus: _Data
    data: Mapping[tuple[str, str], _Data]
    """By benchmark and task."""
    weights: Mapping[str, str]
    """The digest of weights from a folder; the hub's are pinned by the plug-in's revision."""
    steps: dict[str, Step]
    _trained: dict[str, Step | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.base_model.plugin_name

    def cells(self) -> Iterator[PlannedCell]:
        for row in self.study.methods:
            for entry in self.study.benchmarks:
                for task in entry.tasks:
                    for length in entry.lengths:
                        yield self._cell(row, entry, task, length)

    def _cell(self, row: MethodEntry, entry: BenchmarkEntry, task: str, length: int) -> PlannedCell:
        absent = self.corpus.absent or self.data[entry.benchmark.plugin_name, task].absent
        reason = absent or _unavailable(self.base_model, row, entry, task, length, self.study)
        checkpoint = None if self.corpus.absent else self._checkpoint(row)
        geometry = self.base_model.geometry
        axes: dict[str, Any] = {
            "base_model": self.name,
            "method": row.label,
            "frozen": not row.tuned,
            "exact_attention": row.method.exact_attention,
            "seed": self.seed,
            "benchmark": entry.benchmark.plugin_name,
            "task": task,
            "eval_length": length,
            "profile": entry.benchmark.profile,
            "train_length": self.study.target_context if row.tuned else geometry.trained_context,
        }
        step = None
        if reason is None:
            step = self._add(self._cell_step(row, entry, task, length, checkpoint, axes))
        return PlannedCell(**axes, step=step, checkpoint=checkpoint, unavailable=reason)

    def _cell_step(
        self,
        row: MethodEntry,
        entry: BenchmarkEntry,
        task: str,
        length: int,
        checkpoint: Step | None,
        axes: Mapping[str, Any],
    ) -> Step:
        spec: dict[str, Any] = {
            "base_model": self.base_model.identity(),
            **self.weights,
            "method": row.method.identity(),
            "target_context": self.study.target_context,
            "benchmark": entry.benchmark.identity(),
            "task": task,
            "eval_length": length,
            "evaluation": _without(self.study.evaluation.identity(), "held_out_tokens"),
        }
        if entry.benchmark.seeded:
            spec["seed"] = self.seed
        if digest := self.data[entry.benchmark.plugin_name, task].digest:
            spec["data"] = digest
        parents = {"held_out": self._held_out()}
        if checkpoint is not None:
            parents["checkpoint"] = checkpoint
        name = f"{self.name}-{row.row}-s{self.seed}-{entry.benchmark.plugin_name}-{task}-{length}"
        return make_step("cell", name, spec, parents, axes)

    def _checkpoint(self, row: MethodEntry) -> Step | None:
        """The weights a row is evaluated with; None for the hub's own."""
        if row.row not in self._trained:
            base = self._base()
            self._trained[row.row] = self._finetune(row, base) if row.tuned else base
        return self._trained[row.row]

    def _base(self) -> Step | None:
        recipe = self.base_model.pretraining()
        if recipe is None:
            return None
        num_steps = recipe.num_tokens // recipe.training.tokens_per_step
        rows = self._rows(recipe.sequence_length, num_steps, recipe.training)
        spec = {
            "base_model": self.base_model.identity(),
            **_training_spec(recipe.training, num_steps, recipe.sequence_length, self.seed),
        }
        axes = {"base_model": self.name, "method": None, "seed": self.seed}
        name = f"{self.name}-s{self.seed}"
        return self._add(make_step("base", name, spec, {"rows": rows}, axes))

    def _finetune(self, row: MethodEntry, base: Step | None) -> Step:
        study = self.study
        num_steps = study.train_tokens // study.training.tokens_per_step
        rows = self._rows(study.target_context, num_steps, study.training)
        spec = {
            "base_model": self.base_model.identity(),
            **self.weights,
            "method": row.method.identity(),
            "target_context": study.target_context,
            **_training_spec(study.training, num_steps, study.target_context, self.seed),
        }
        parents = {"rows": rows} if base is None else {"rows": rows, "base": base}
        axes = {"base_model": self.name, "method": row.label, "seed": self.seed}
        name = f"{self.name}-{row.row}-s{self.seed}"
        return self._add(make_step("finetune", name, spec, parents, axes))

    def _rows(self, row_length: int, num_steps: int, training: Training) -> Step:
        num_rows = num_steps * training.tokens_per_step // row_length
        spec = {
            **self._text(),
            "row_length": row_length,
            "num_rows": num_rows,
            "upsampling": self.study.upsampling.identity(),
            "seed": self.seed,
        }
        name = f"{self.study.corpus.plugin_name}-{self.name}-{row_length}-s{self.seed}"
        return self._add(make_step("rows", name, spec, {}))

    def _held_out(self) -> Step:
        spec = {**self._text(), "tokens_per_domain": self.study.evaluation.held_out_tokens}
        name = f"{self.study.corpus.plugin_name}-{self.name}"
        return self._add(make_step("held_out", name, spec, {}))

    def _text(self) -> dict[str, Any]:
        # Only the tokenizer of a base model matters for text, so its parameters stay out.
        tokenizer = {"name": self.name, "version": self.base_model.plugin_version}
        return {
            "corpus": self.study.corpus.identity(),
            "digest": self.corpus.digest,
            "tokenizer": {**tokenizer, **self.weights},
        }

    def _add(self, step: Step) -> Step:
        return self.steps.setdefault(step.fingerprint, step)


def _training_spec(training: Training, num_steps: int, length: int, seed: int) -> dict[str, Any]:
    if num_steps < 1:
        raise SpecError(
            "train_tokens",
            f"less than one step of {training.tokens_per_step} tokens",
            "a training run has at least one step",
            "Raise train_tokens or lower training.tokens_per_step.",
        )
    identity = training.identity()
    return {"training": identity, "num_steps": num_steps, "row_length": length, "seed": seed}


def _check(base_model: BaseModel, row: MethodEntry, target: int, where: str) -> None:
    trained = base_model.geometry.trained_context
    lengths = ContextLengths(trained, target, request=target)
    try:
        row.method.check(base_model.geometry, lengths)
        row.method.rope_table(base_model.geometry, lengths)
    except SpecError as error:
        place = f"{where} ({base_model.plugin_name}): {error.where}"
        raise SpecError(place, error.given, error.rule, error.remedy) from None


def _unavailable(
    base_model: BaseModel,
    row: MethodEntry,
    entry: BenchmarkEntry,
    task: str,
    length: int,
    study: StudySpec,
) -> str | None:
    trained = base_model.geometry.trained_context
    lengths = ContextLengths(trained, study.target_context, request=length)
    reach = row.method.reach(base_model.geometry, lengths)
    if reach is not None and length > reach:
        return f"eval length {length} is beyond the {reach} tokens {row.label} reaches"
    return entry.benchmark.unavailable(base_model, task, length)


def _without(values: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name != key}


def _cell_json(cell: PlannedCell) -> dict[str, Any]:
    axes = {
        name: getattr(cell, name)
        for name in PlannedCell.__dataclass_fields__
        if name not in ("step", "checkpoint", "unavailable")
    }
    step, checkpoint = cell.step, cell.checkpoint
    return {
        **axes,
        "fingerprint": step.fingerprint if step else None,
        "cell": step.short if step else None,
        "folder": step.folder if step else None,
        "checkpoint": checkpoint.short if checkpoint else None,
        "blocked_by": [parent[:SHORT] for parent in step.parents.values()] if step else [],
        "unavailable": cell.unavailable,
    }
