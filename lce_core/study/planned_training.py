"""The training runs of one base model and seed in a plan: the base, and a chain for each variant.

A variant is a method, frozen or tuned, as the study lists it. Its chain has one run, or one for
each of the method's stages. Runs that do the same, whatever variant they belong to, are one step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lce_core.errors import SpecError
from lce_core.methods import Method
from lce_core.recipe import Training
from lce_core.rope import ContextLengths
from lce_core.store.steps import Step, make_step
from lce_core.study.planned_data import Text
from lce_core.study.spec import MethodEntry
from lce_core.study.step_kinds import BaseSpec, FinetuneSpec


@dataclass
class PlannedTraining:
    """Makes the training steps of one base model and seed."""

    text: Text
    seed: int
    add: Callable[[Step], Step]
    """Puts a step into the plan, or finds the one that is there already."""
    _checkpoints: dict[str, Step | None] = field(default_factory=dict)

    def checkpoint(self, variant: MethodEntry) -> Step | None:
        """The weights a variant is evaluated with; None for the hub's own.

        Raises:
          SpecError: a run of less than one step.
        """
        if variant.name not in self._checkpoints:
            base = self._base()
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
            seed=self.seed,
        )
        axes = {"base_model": base_model.known_as, "method": None, "seed": self.seed}
        name = f"{base_model.known_as}-s{self.seed}"
        return self.add(make_step(spec, name, {"rows": rows}, axes))

    def _chain(self, variant: MethodEntry, base: Step | None) -> Step:
        study = self.text.study
        trained = self.text.base_model.geometry.trained_context
        lengths = ContextLengths(trained, study.target_context, study.target_context)
        left = study.train_tokens
        for number, stage in enumerate(variant.method.stages(lengths), start=1):
            tokens = int(stage.share * study.train_tokens)
            name = f"{variant.name}-stage{number}"
            base = self._finetune(variant, name, stage.method, stage.context, tokens, base)
            left -= tokens
        return self._finetune(
            variant, variant.name, variant.method, study.target_context, left, base
        )

    def _finetune(
        self,
        variant: MethodEntry,
        name: str,
        method: Method,
        context: int,
        tokens: int,
        base: Step | None,
    ) -> Step:
        base_model, training = self.text.base_model, self.text.study.training
        num_steps = _num_steps(training, tokens)
        rows = self._rows(context, num_steps, training)
        spec = FinetuneSpec(
            base_model=base_model,
            weights=self.text.weights,
            method=method,
            target_context=context,
            training=training,
            num_steps=num_steps,
            row_length=context,
            seed=self.seed,
            train_positions=variant.train_positions,
        )
        parents = {"rows": rows} if base is None else {"rows": rows, "base": base}
        axes = {"base_model": base_model.known_as, "method": variant.label, "seed": self.seed}
        full_name = f"{base_model.known_as}-{name}-s{self.seed}"
        return self.add(make_step(spec, full_name, parents, axes))

    def _rows(self, row_length: int, num_steps: int, training: Training) -> Step:
        num_rows = num_steps * training.tokens_per_step // row_length
        return self.add(self.text.rows(row_length, num_rows, self.seed))


def _num_steps(training: Training, tokens: int) -> int:
    if tokens < training.tokens_per_step:
        raise SpecError(
            "train_tokens",
            f"less than one step of {training.tokens_per_step} tokens",
            "at least one step of training",
            "raise train_tokens or lower training.tokens_per_step",
        )
    return tokens // training.tokens_per_step
