"""What training and evaluating cost: tokens, FLOPs by lengths and attention, and decoding."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lce_core.data.sequences import Answers
from lce_core.execution import Execution
from lce_core.methods import Method
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths
from lce_core.study.cost import attention_flops, cache_elements, matmul_parameters, training_flops

_BATCH_TOKENS: int = Execution.model_fields["micro_batch_tokens"].default
"""What fp32 texts are batched to; another micro-batch changes the price of their answers a bit."""


@dataclass(frozen=True)
class Decoding:
    """Tokens generated one after the other, if every answer is as long as it may be."""

    tokens: int = 0
    flops: float = 0.0
    bytes: float = 0.0
    """Read from memory: all weights in each pass, and the keys and values that a token attends."""
    layer_passes: int = 0
    """Layers that were passed for one more token of each text of a batch: what a host starts."""

    def __add__(self, other: Decoding) -> Decoding:
        return Decoding(
            self.tokens + other.tokens,
            self.flops + other.flops,
            self.bytes + other.bytes,
            self.layer_passes + other.layer_passes,
        )

    def scaled(self, share: float) -> Decoding:
        """The cost of a share of it."""
        return Decoding(
            round(share * self.tokens),
            share * self.flops,
            share * self.bytes,
            round(share * self.layer_passes),
        )


@dataclass(frozen=True)
class StepCost:
    """Tokens of text through the model, and the FLOPs they take; what is generated, apart."""

    tokens: int = 0
    flops: float = 0.0
    decoding: Decoding = field(default_factory=Decoding)

    def __add__(self, other: StepCost) -> StepCost:
        return StepCost(
            self.tokens + other.tokens,
            self.flops + other.flops,
            self.decoding + other.decoding,
        )

    def scaled(self, share: float) -> StepCost:
        """The cost if only a share of the text's tokens pass; what is generated stays."""
        return StepCost(round(share * self.tokens), share * self.flops, self.decoding)

    @property
    def all_flops(self) -> float:
        """FLOPs, those of generated tokens included."""
        return self.flops + self.decoding.flops


def total_cost(costs: Sequence[StepCost]) -> StepCost:
    """Sum of the costs, in one go: plans have a hundred thousand."""
    decoding = [cost.decoding for cost in costs]
    return StepCost(
        sum(cost.tokens for cost in costs),
        sum(cost.flops for cost in costs),
        Decoding(
            sum(one.tokens for one in decoding),
            sum(one.flops for one in decoding),
            sum(one.bytes for one in decoding),
            sum(one.layer_passes for one in decoding),
        ),
    )


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


def decoding_cost(
    model: LanguageModel,
    method: Method,
    target: int,
    answers: Answers,
    length: float,
    precision: str,
) -> Decoding:
    """Cost of answers to prompts of mean length `length`, each as long as it may be.

    The first token of an answer follows from the prompt's own pass. In bf16 every text passes by
    itself, in fp32 as many together as fill a micro-batch (`lce_core.evaluation.decoding`).
    """
    tokens = answers.number * answers.longest
    if answers.longest < 2 or not answers.number:
        return Decoding(tokens)
    half = precision == "bf16"
    batch = 1 if half else max(1, min(answers.number, int(_BATCH_TOKENS / length)))
    generated = answers.number * (answers.longest - 1)
    passes = math.ceil(answers.number / batch) * (answers.longest - 1)
    keys = _keys_of_last(model, method, target, length + answers.longest / 2)
    weights, element = matmul_parameters(model.shape, model.geometry), 2 if half else 4
    cached = keys * cache_elements(model.shape, model.geometry)
    flops = 2.0 * weights + attention_flops(model.shape, model.geometry, keys)
    return Decoding(
        tokens=tokens,
        flops=generated * flops,
        bytes=element * (passes * weights + generated * cached),
        layer_passes=passes * model.shape.num_layers,
    )


def _keys_of_last(model: LanguageModel, method: Method, target: int, length: float) -> float:
    """Keys that the last token of a sequence is scored with."""
    lengths = ContextLengths(model.geometry.trained_context, target, request=round(length))
    scheme = method.attention(model.geometry, lengths)
    if scheme is None:
        return length
    # What one token more adds to the pairs of the whole sequence.
    before = length - 1
    return max(1.0, length * scheme.mean_keys(length) - before * scheme.mean_keys(before))


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
