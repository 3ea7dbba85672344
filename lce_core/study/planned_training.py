"""Plan the training runs of one base model and seed.

A tuned variant is trained by a chain of runs: one per stage of its method, then a final run. The
chain starts from the base model's weights or, with `start_from`, from those of another tuned
variant. Identical runs of several variants are in the plan once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lce_core.methods import Method
from lce_core.recipe import Training
from lce_core.rope import ContextLengths
from lce_core.store.steps import Step, make_step
from lce_core.study.planned_data import Steps, Text, add_step
from lce_core.study.planned_tuning import plan_choice
from lce_core.study.spec import MethodEntry
from lce_core.study.step_cost import StepCost, finetune_cost, total_cost
from lce_core.study.step_kinds import BaseSpec, FinetuneSpec, SearchSpec
from lce_core.study.training_budget import reference_flops, steps_for_flops, steps_for_tokens


@dataclass(frozen=True)
class _Run:
    """`target` and `row_length` are in tokens."""

    name: str
    method: Method
    target: int
    row_length: int


@dataclass
class PlannedTraining:
    """Adds the training steps of one base model and seed to a plan."""

    text: Text
    seed: int
    steps: Steps
    axes: Mapping[str, Any] = field(default_factory=dict)
    costs: dict[str, StepCost] = field(default_factory=dict)
    """Cost of each tuned variant's own runs, by name, without the weights that they start from."""
    _checkpoints: dict[str, Step | None] = field(default_factory=dict)

    def checkpoint(self, variant: MethodEntry) -> Step | None:
        """Add the training step that produces a variant's weights, and return it.

        None if the study does not train them: they are published, or a base model's.
        """
        if variant.checkpoint is not None:
            return None
        if source := self.text.study.weights_source_of(variant):
            return self.checkpoint(source)
        if variant.name not in self._checkpoints:
            start = self.text.study.start_of(variant)
            base = self._base() if start is None else self.checkpoint(start)
            self._checkpoints[variant.name] = self._chain(variant, base) if variant.tuned else base
        return self._checkpoints[variant.name]

    def search(self, variant: MethodEntry) -> Step | None:
        """Add and return the step that searches for a variant's parameters; None without a search.

        It evaluates the weights with which the training starts, or the variant's if untrained.
        """
        if variant.method.open_search() is None:
            return None
        text, base_model = self.text, self.text.base_model
        spec = SearchSpec(
            base_model=base_model,
            weights=text.weights,
            method=variant.method,
            target_context=text.study.target_of(variant),
            evaluation=text.study.evaluation.inference(),
        )
        start = text.study.start_of(variant)
        weights = self.checkpoint(start or variant) if start or not variant.tuned else self._base()
        inputs = {"validation": text.validation(self.steps), "checkpoint": weights}
        parents = {role: step for role, step in inputs.items() if step is not None}
        axes = {
            "base_model": base_model.known_as,
            "method": variant.label,
            "frozen": not variant.is_tuned,
            "method_name": variant.method.plugin_name,
            "seed": self.seed,
        }
        name = f"{base_model.known_as}-{variant.name}-s{self.seed}"
        return add_step(self.steps, make_step(spec, name, parents, axes))

    def _base(self) -> Step | None:
        base_model = self.text.base_model
        recipe = base_model.pretraining()
        if recipe is None:
            return None
        [num_steps] = steps_for_tokens(recipe.num_tokens, (), recipe.training.tokens_per_step)
        rows = self._rows(recipe.sequence_length, num_steps, recipe.training)
        spec = BaseSpec(
            base_model=base_model,
            training=recipe.training,
            num_steps=num_steps,
            row_length=recipe.sequence_length,
            **self._seeds(),
        )
        name = f"{base_model.known_as}-s{self.seed}"
        return add_step(
            self.steps, make_step(spec, name, {"rows": rows}, self._training_axes(None))
        )

    def _chain(self, variant: MethodEntry, base: Step | None) -> Step:
        study, base_model = self.text.study, self.text.base_model
        target = study.target_of(variant)
        lengths = ContextLengths(base_model.geometry.trained_context, target, target)
        stages = variant.method.stages(lengths)
        runs = [
            _Run(f"{variant.name}-stage{number}", stage.method, stage.context, stage.context)
            for number, stage in enumerate(stages, start=1)
        ]
        runs.append(_Run(variant.name, variant.method, target, study.train_length_of(variant)))
        choice = self._choice(variant) if variant.at_best else None
        search = self.search(variant)
        per_step = [self._step_cost(variant, run) for run in runs]
        counts = self._num_steps(variant, [stage.share for stage in stages], per_step)
        self.costs[variant.name] = total_cost(
            [cost.scaled(count) for cost, count in zip(per_step, counts, strict=True)]
        )
        for run, num_steps in zip(runs, counts, strict=True):
            inputs = {"base": base, "choice": choice}
            if run.method == variant.method:
                inputs["search"] = search
            base = self._finetune(variant, run, num_steps, inputs)
        assert base is not None, "the last run has a step"
        return base

    def _step_cost(self, variant: MethodEntry, run: _Run) -> StepCost:
        tokens = self.text.study.training_of(variant).tokens_per_step
        return finetune_cost(self.text.base_model, run.method, run.target, tokens, run.row_length)

    def _num_steps(
        self, variant: MethodEntry, shares: Sequence[float], per_step: Sequence[StepCost]
    ) -> list[int]:
        study = self.text.study
        tokens = study.train_tokens_of(variant)
        if study.match == "tokens":
            return steps_for_tokens(tokens, shares, per_step[0].tokens)
        flops = reference_flops(self.text.base_model, tokens, study.target_context)
        return steps_for_flops(flops, shares, [cost.flops for cost in per_step])

    def _choice(self, variant: MethodEntry) -> Step:
        tune = self.text.study.tune
        assert tune is not None, "only `tune` adds entries that train at their best value"
        axes = {
            "chosen_for": variant.label,
            "validation": self.text.validation(self.steps).fingerprint,
            "window": self.text.study.target_of(variant),
        }
        trials = PlannedTraining(self.text, tune.seed, self.steps, axes)
        return plan_choice(self.text, self.steps, variant, tune, trials.checkpoint)

    def _finetune(
        self,
        variant: MethodEntry,
        run: _Run,
        num_steps: int,
        inputs: Mapping[str, Step | None],
    ) -> Step:
        base_model, training = self.text.base_model, self.text.study.training_of(variant)
        rows = self._rows(run.row_length, num_steps, training)
        spec = FinetuneSpec(
            base_model=base_model,
            weights=self.text.weights,
            method=run.method,
            target_context=run.target,
            training=training,
            num_steps=num_steps,
            row_length=run.row_length,
            **self._seeds(),
            train_positions=variant.train_positions,
        )
        parents = {"rows": rows} | {role: step for role, step in inputs.items() if step is not None}
        axes = {**self._training_axes(variant.label), **self.axes}
        full_name = f"{base_model.known_as}-{run.name}-s{self.seed}"
        return add_step(self.steps, make_step(spec, full_name, parents, axes))

    def _training_axes(self, method: str | None) -> dict[str, Any]:
        return {
            "base_model": self.text.base_model.known_as,
            "method": method,
            "seed": self.seed,
            "held_out": self.text.held_out(self.steps).fingerprint,
        }

    def _rows(self, row_length: int, num_steps: int, training: Training) -> Step:
        num_rows = num_steps * training.tokens_per_step // row_length
        seeds = self._seeds()
        seed = seeds.get("data_seed", seeds["seed"])
        return self.text.rows(self.steps, row_length, num_rows, seed)

    def _seeds(self) -> dict[str, int]:
        """Return the fields `seed` (initial weights) and, if it differs, `data_seed`."""
        study = self.text.study
        if study.seeds_vary == "all" or self.seed == study.seeds[0]:
            return {"seed": self.seed}
        if study.seeds_vary == "data":
            return {"seed": study.seeds[0], "data_seed": self.seed}
        return {"seed": self.seed, "data_seed": study.seeds[0]}
