"""What training and evaluating cost: tokens, and FLOPs by shapes, lengths and attention."""

from __future__ import annotations

from dataclasses import dataclass

from lce_core.methods import Method
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths
from lce_core.study.cost import attention_flops, matmul_parameters, training_flops


@dataclass(frozen=True)
class StepCost:
    """Tokens of text through the model, and the FLOPs they take."""

    tokens: int = 0
    flops: float = 0.0

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(self.tokens + other.tokens, self.flops + other.flops)


def pretraining_cost(model: LanguageModel, tokens: int, length: int) -> StepCost:
    """Cost of training from random weights on `tokens` tokens in rows of `length` tokens."""
    return StepCost(tokens, tokens * training_flops(model.shape, model.geometry, length))


def finetune_cost(
    model: LanguageModel, method: Method, target: int, tokens: int, length: int
) -> StepCost:
    """Cost of training with a method for `target` tokens of context, in rows of `length` tokens."""
    weights, attention = _forward(model, method, target, length, training=True)
    # Kept weights pass gradients on and get none; the few that low-rank methods train are left out.
    passes = 3 if method.lora() is None else 2
    return StepCost(tokens, tokens * (passes * weights + 3 * attention))


def evaluation_cost(
    model: LanguageModel, method: Method, target: int, tokens: int, length: float
) -> StepCost:
    """Cost of `tokens` tokens of text through the model, in sequences of mean length `length`."""
    if not tokens:
        return StepCost()
    return StepCost(tokens, tokens * sum(_forward(model, method, target, length, training=False)))


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
