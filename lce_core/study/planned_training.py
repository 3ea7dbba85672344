"""Plan the training runs of one base model and seed.

A variant is an entry of the study's methods, frozen or tuned. A tuned variant is trained by a chain
of runs: one per stage of its method, then a final run. The chain starts from the base model's
weights or, with `start_from`, from the weights of another tuned variant. If variants have identical
runs, the plan contains each of these runs once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lce_core.errors import SpecError
from lce_core.methods import Method
from lce_core.recipe import Training
from lce_core.rope import ContextLengths
from lce_core.store.steps import Step, make_step
from lce_core.study.planned_data import Steps, Text, add_step
from lce_core.study.planned_tuning import plan_choice
from lce_core.study.spec import MethodEntry
from lce_core.study.step_kinds import BaseSpec, FinetuneSpec


@dataclass(frozen=True)
class _Run:
    """One training run of a variant. `target` (context) and `row_length` are in tokens."""

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
    """The planned steps, to which training steps and their data steps are added."""
    axes: Mapping[str, Any] = field(default_factory=dict)
    """Further axes of the fine-tuning steps."""
    _checkpoints: dict[str, Step | None] = field(default_factory=dict)

    def checkpoint(self, variant: MethodEntry) -> Step | None:
        """Return the training step that produces a variant's weights, and add it to `steps`.

        For a frozen variant this is the training step of the base model, with `weights_of` that of
        another variant. Return None if the study does not train the weights: they are published, or
        a base model's from a folder or the hub.

        Raises:
          SpecError: if a run has fewer tokens than one optimizer step.
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

    def _base(self) -> Step | None:
        base_model = self.text.base_model
        recipe = base_model.pretraining()
        if recipe is None:
            return None
        num_steps = _num_steps(recipe.training, recipe.num_tokens)
        rows = self._rows(recipe.sequence_length, num_steps, recipe.training)
        spec = BaseSpec(
            base_model=base_model,
            training=recipe.training,
            num_steps=num_steps,
            row_length=recipe.sequence_length,
            **self._seeds(),
        )
        axes = {"base_model": base_model.known_as, "method": None, "seed": self.seed}
        name = f"{base_model.known_as}-s{self.seed}"
        return add_step(self.steps, make_step(spec, name, {"rows": rows}, axes))

    def _chain(self, variant: MethodEntry, base: Step | None) -> Step:
        study = self.text.study
        trained = self.text.base_model.geometry.trained_context
        target, all_tokens = study.target_of(variant), study.train_tokens_of(variant)
        left = all_tokens
        choice = self._choice(variant) if variant.at_best else None
        for number, stage in enumerate(
            variant.method.stages(ContextLengths(trained, target, target)), start=1
        ):
            tokens = int(stage.share * all_tokens)
            run = _Run(f"{variant.name}-stage{number}", stage.method, stage.context, stage.context)
            base = self._finetune(variant, run, tokens, base, choice)
            left -= tokens
        run = _Run(variant.name, variant.method, target, study.train_length_of(variant))
        return self._finetune(variant, run, left, base, choice)

    def _choice(self, variant: MethodEntry) -> Step:
        tune = self.text.study.tune
        assert tune is not None, "only `tune` adds entries that train at their best value"
        axes = {"chosen_for": variant.label}
        trials = PlannedTraining(self.text, tune.seed, self.steps, axes)
        return plan_choice(self.text, self.steps, variant, tune, trials.checkpoint)

    def _finetune(
        self, variant: MethodEntry, run: _Run, tokens: int, base: Step | None, choice: Step | None
    ) -> Step:
        base_model, training = self.text.base_model, self.text.study.training_of(variant)
        num_steps = _num_steps(training, tokens)
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
        inputs = {"rows": rows, "base": base, "choice": choice}
        parents = {role: step for role, step in inputs.items() if step is not None}
        axes = {"base_model": base_model.known_as, "method": variant.label, "seed": self.seed}
        full_name = f"{base_model.known_as}-{run.name}-s{self.seed}"
        return add_step(self.steps, make_step(spec, full_name, parents, {**axes, **self.axes}))

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


def _num_steps(training: Training, tokens: int) -> int:
    if tokens < training.tokens_per_step:
        raise SpecError(
            "train_tokens",
            f"{tokens} tokens for one training run",
            f"at least one step of training, {training.tokens_per_step} tokens",
            "increase train_tokens or reduce training.tokens_per_step",
        )
    return tokens // training.tokens_per_step
