"""What the steps of a plan cost: tokens and FLOPs from shapes and lengths.

Predicted before they run, and for a cell also from the sequences that it then had.
"""

from __future__ import annotations

from dataclasses import dataclass

from lce_core.benchmarks import BENCHMARKS
from lce_core.cost import forward_flops, training_flops
from lce_core.models import MODELS
from lce_core.sequences import Sequences
from lce_core.steps import Step


@dataclass(frozen=True)
class StepCost:
    """Tokens through the model, and the FLOPs they take with full causal attention."""

    tokens: int = 0
    flops: float = 0.0

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(self.tokens + other.tokens, self.flops + other.flops)


def step_cost(step: Step) -> StepCost:
    """Predicted cost of one step; data steps run no model and cost nothing."""
    if step.kind not in ("base", "finetune", "cell"):
        return StepCost()
    if step.kind == "cell":
        if "num_tokens" in step.axes:  # known where the cell reads a data set
            return _forward(step, step.axes["num_tokens"], step.axes["mean_length"])
        benchmark = BENCHMARKS.from_identity(step.spec["benchmark"])
        length = step.spec["eval_length"]
        held_out = step.lineage["held_out"]["tokens_per_domain"]
        tokens = benchmark.num_tokens(step.spec["task"], length, held_out)
        return _forward(step, tokens, length)
    model = MODELS.from_identity(step.spec["base_model"])
    tokens = step.spec["num_steps"] * step.spec["training"]["tokens_per_step"]
    per_token = training_flops(model.shape, model.geometry, step.spec["row_length"])
    return StepCost(tokens, tokens * per_token)


def cell_cost(step: Step, sequences: Sequences) -> StepCost:
    """Cost of a cell that took these sequences through the model."""
    return _forward(step, sequences.num_tokens, sequences.mean_length)


def _forward(step: Step, tokens: int, length: float) -> StepCost:
    model = MODELS.from_identity(step.spec["base_model"])
    return StepCost(tokens, tokens * forward_flops(model.shape, model.geometry, length))
