"""What the steps of a plan cost: tokens and FLOPs from shapes, lengths and the method's attention.

Predicted before they run, and for a cell also from the sequences that it then had.
"""

from __future__ import annotations

from dataclasses import dataclass

from lce_core.benchmarks import BENCHMARKS
from lce_core.data.sequences import Sequences
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS, LanguageModel
from lce_core.rope import ContextLengths
from lce_core.store.steps import Step
from lce_core.study.cost import attention_flops, matmul_parameters, training_flops


@dataclass(frozen=True)
class StepCost:
    """Tokens of text through the model, and the FLOPs they take."""

    tokens: int = 0
    flops: float = 0.0

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(self.tokens + other.tokens, self.flops + other.flops)


def step_cost(step: Step) -> StepCost:
    """Predicted cost of one step; data steps run no model and cost nothing."""
    if step.kind == "cell":
        if "num_tokens" in step.axes:  # known where the cell reads a data set
            return _evaluation(step, step.axes["num_tokens"], step.axes["mean_length"])
        benchmark = BENCHMARKS.from_identity(step.spec["benchmark"])
        length = step.spec["eval_length"]
        held_out = step.lineage["held_out"]["tokens_per_domain"]
        tokens = benchmark.num_tokens(step.spec["task"], length, held_out)
        return _evaluation(step, tokens, length)
    if step.kind not in ("base", "finetune"):
        return StepCost()
    model, spec = MODELS.from_identity(step.spec["base_model"]), step.spec
    tokens = spec["num_steps"] * spec["training"]["tokens_per_step"]
    if step.kind == "base":
        length = spec["row_length"]
        return StepCost(tokens, tokens * training_flops(model.shape, model.geometry, length))
    method = METHODS.from_identity(spec["method"])
    weights, attention = _forward(
        model, method, spec["target_context"], spec["row_length"], training=True
    )
    # Kept weights pass gradients on and get none; the few that low-rank methods train are left out.
    passes = 3 if method.low_rank() is None else 2
    return StepCost(tokens, tokens * (passes * weights + 3 * attention))


def cell_cost(step: Step, sequences: Sequences) -> StepCost:
    """Cost of a cell that took these sequences through the model."""
    return _evaluation(step, sequences.num_tokens, sequences.mean_length)


def _evaluation(step: Step, tokens: int, length: float) -> StepCost:
    if not tokens:
        return StepCost()
    model = MODELS.from_identity(step.spec["base_model"])
    method = METHODS.from_identity(step.spec["method"])
    flops = _forward(model, method, step.spec["target_context"], length, training=False)
    return StepCost(tokens, tokens * sum(flops))


def _forward(
    model: LanguageModel, method: Method, target: int, length: float, *, training: bool
) -> tuple[float, float]:
    """FLOPs of a token of text in matrix products with weights, and in attention."""
    geometry, growth = model.geometry, 1.0
    lengths = ContextLengths(geometry.trained_context, target, request=round(length))
    insertion = method.insertion(geometry)
    if insertion is not None:
        length = insertion.train_length if training else length
        growth = insertion.block / (insertion.block - 1)
    describe = method.training_attention if training else method.attention
    scheme = describe(geometry, lengths)
    keys = length * growth / 2 if scheme is None else scheme.mean_keys(length * growth)
    weights = 2.0 * matmul_parameters(model.shape, geometry)
    return growth * weights, growth * attention_flops(model.shape, geometry, keys)
