"""Context-extension methods, one plug-in file each; studies name a method by its file name.

A method describes with numpy and dataclasses what it changes in a model: the RoPE frequencies, the
attention, or both. `lce_core.extension.extending` applies the method to a model. Names follow the
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
"""What a method changes in the model. "interpolation" divides RoPE frequencies, as if positions
were closer together. "base" changes the RoPE base. "dynamic" does one of these, depending on the
request's length. "approximate" changes the attention."""


class Method(Plugin):
    """Base class of all context-extension methods; by itself it changes nothing.

    Subclasses override the frequencies (`rope_table`), the attention (`attention`) or both. All
    methods of this class are pure functions of the base model's geometry and the lengths, so
    results never depend on the order of requests.
    """

    family: ClassVar[Family]
    exact_attention: ClassVar[bool] = True
    """True if every token attends to every earlier one, in training and at inference."""
    training: ClassVar[Literal["none", "optional", "required"]] = "optional"
    """Role of fine-tuning: "none" for inference-only attention, "optional", or "required"."""
    rotary: ClassVar[str | None] = None
    """Import path "module:class" of a rotary module with trained parameters; None for methods whose
    frequencies are not trained. The class is called with (method, geometry, lengths, seed=...). The
    run's seed determines the initial parameters. Training updates and saves them together with the
    model's weights."""

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Return the RoPE table for one request length; the default is the base model's own."""
        return RopeTable(geometry.inv_freq())

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> AttentionScheme | None:
        """Return an attention other than full causal softmax; None for stock attention."""
        return None

    def training_attention(
        self, geometry: RopeGeometry, lengths: ContextLengths
    ) -> AttentionScheme | None:
        """Return the attention used in training; the default is the attention used at inference."""
        return self.attention(geometry, lengths)

    def lora(self) -> LoRA | None:
        """Return the weights to train through LoRA; None trains all weights directly."""
        return None

    def insertion(self, geometry: RopeGeometry) -> TokenInsertion | None:
        """Return the spacing of a token that the method inserts into texts; None for no token."""
        return None

    def stages(self, lengths: ContextLengths) -> tuple[TrainingStage, ...]:
        """Return the fine-tuning runs before the last one, in order; () for a single run.

        Each run starts from the weights of the previous run.
        """
        return ()

    def reach(self, geometry: RopeGeometry, lengths: ContextLengths) -> int | None:
        """Return the longest request in tokens that the method supports; None for no limit."""
        return None

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raise SpecError if the parameters do not fit the model or lengths."""

    def stock_rope(self, lengths: ContextLengths) -> Mapping[str, Any] | None:
        """Return transformers' `rope_parameters` of the method; None if it has none.

        `lce export` writes these parameters into config.json if they reproduce the method's table.
        It recognises a changed base or a single divisor of all frequencies without them.
        """
        return None

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        """Return True if requests of other lengths have other frequencies."""
        return False


class ScaledMethod(Method):
    """Base class of methods with one scale: the target context divided by the trained context."""

    scale: float | None = None
    """Divisor of the frequencies; None means target / trained context."""

    def scale_for(self, lengths: ContextLengths) -> float:
        """Return `scale`; if it is None, the target context divided by the trained context.

        Raises:
          SpecError: if the scale is below 1.
        """
        return checked_scale(self, self.scale, lengths)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.scale_for(lengths)
        super().check(geometry, lengths)


def begins_alike(
    method: Method, geometry: RopeGeometry, shorter: ContextLengths, longer: ContextLengths
) -> bool:
    """Return True if a longer request computes its first tokens exactly like a shorter request.

    Attention is causal, so equal frequencies and an equal attention scheme are sufficient. One
    forward pass over the longer text can then serve both requests.
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
    """Return `scale`, or target / trained for None; raise SpecError for a scale below 1."""
    where = method.plugin_name
    chosen = lengths.target / lengths.trained if scale is None else scale
    if chosen < 1:
        raise SpecError(
            f"{where}.scale", chosen, "a scale of at least 1", "give target / trained context"
        )
    return chosen


@dataclass(frozen=True)
class TrainingStage:
    """A fine-tuning run before the last one, for methods that train in several runs."""

    method: Method
    context: int
    """Length of the run's training rows in tokens."""
    share: float
    """Fraction of the study's train_tokens that the run uses."""


METHODS: Registry[Method] = Registry("lce_core.methods", "METHOD", Method)
