"""Context-extension methods, one file each; the file's name is the method's label.

A method describes, in numpy and dataclasses, what changes: a frequency table, an attention scheme,
or both. `lce_core.extension.extending` carries it out on a model. Labels are those of the
papers' tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from lce_core.attention import AttentionScheme
from lce_core.errors import SpecError
from lce_core.methods._adaptation import LoRA, TokenInsertion
from lce_core.registry import Plugin, Registry
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

__all__ = ["METHODS", "Family", "LoRA", "Method", "ScaledMethod", "TokenInsertion", "TrainingStage"]

Family = Literal["none", "interpolation", "base", "dynamic", "approximate"]
"""What a method changes: nothing; frequencies, divided as if positions were closer; the base of the
frequencies; either of these as far as the request needs; which keys a query attends to, and how."""


class Method(Plugin):
    """Base of all methods: the identity extension.

    Overrides change frequencies (`rope_table`), attention (`attention`) or both. All of them are
    pure functions of geometry and lengths: a result never depends on the order of requests.
    """

    family: ClassVar[Family]
    exact_attention: ClassVar[bool] = True
    """Every token attends to every earlier one, in training as in use."""
    training: ClassVar[Literal["none", "optional", "required"]] = "optional"
    """Whether a study may or must fine-tune it; "none" for inference-only attention schemes."""
    rotary: ClassVar[str | None] = None
    """Rotary module that computes frequencies from parameters of its own, as "module:class"; called
    with (method, geometry, lengths, seed=...). Its parameters are trained, from values that follow
    from the seed of the run, and saved beside the model's."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Frequencies for one request; the base model's own unless overridden."""
        return RopeTable(geometry.inv_freq())

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> AttentionScheme | None:
        """Attention other than full causal softmax, or None for the model's stock attention."""
        return None

    def training_attention(
        self, geometry: RopeGeometry, lengths: ContextLengths
    ) -> AttentionScheme | None:
        """Attention in training, where it is another than in use."""
        return self.attention(geometry, lengths)

    def lora(self) -> LoRA | None:
        """Which weights are trained through LoRA; None to train all weights."""
        return None

    def insertion(self, geometry: RopeGeometry) -> TokenInsertion | None:
        """Tokens that the method puts between those of the text, or None."""
        return None

    def stages(self, lengths: ContextLengths) -> tuple[TrainingStage, ...]:
        """Fine-tuning runs before the last one, each starting from the one before."""
        return ()

    def reach(self, geometry: RopeGeometry, lengths: ContextLengths) -> int | None:
        """Longest request in tokens that the method is defined for; None for no limit."""
        return None

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raises SpecError where the parameters do not fit the model or the lengths."""

    def stock_rope(self, lengths: ContextLengths) -> Mapping[str, Any] | None:
        """`rope_parameters` under which transformers knows the method; None if it does not.

        Exported configurations are made of it (`lce_core.extension.stock_rope`), if it says the
        method's table; a base, or one divisor of all frequencies, is found without it.
        """
        return None

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        """Whether frequencies change with the request's length around the given lengths."""
        return False


class ScaledMethod(Method):
    """Base of methods with one scale: how many trained contexts they reach."""

    scale: float | None = None
    """Divisor of the frequencies; None: target / trained context."""

    def scale_for(self, lengths: ContextLengths) -> float:
        """The given scale, or target / trained context; at least 1.

        Raises:
          SpecError: a scale below 1.
        """
        return checked_scale(self, self.scale, lengths)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raises SpecError for a scale below 1."""
        self.scale_for(lengths)
        super().check(geometry, lengths)


def begins_alike(
    method: Method, geometry: RopeGeometry, shorter: ContextLengths, longer: ContextLengths
) -> bool:
    """Whether a longer request treats its first tokens as a shorter one treats them all.

    Attention is causal, so the same frequencies and the same attention are enough.
    """
    if any(method.length_dependent(geometry, lengths) for lengths in (shorter, longer)):
        return False
    first, second = (method.rope_table(geometry, lengths) for lengths in (shorter, longer))
    return (
        first.attention_factor == second.attention_factor
        and np.array_equal(first.inv_freq, second.inv_freq)
        and method.attention(geometry, shorter) == method.attention(geometry, longer)
    )


def checked_scale(method: Method, scale: float | None, lengths: ContextLengths) -> float:
    """The given scale of a method, or target / trained context.

    Raises:
      SpecError: a scale below 1.
    """
    where = method.plugin_name
    chosen = lengths.target / lengths.trained if scale is None else scale
    if chosen < 1:
        raise SpecError(
            f"{where}.scale", chosen, "a scale of at least 1", "give target / trained context"
        )
    return chosen


@dataclass(frozen=True)
class TrainingStage:
    """One of several fine-tuning runs in a row."""

    method: Method
    context: int
    """Tokens of its rows."""
    share: float
    """Part of the study's train_tokens that it takes."""


METHODS: Registry[Method] = Registry("lce_core.methods", "METHOD", Method)
