"""Inspect a method on a base model at given lengths: its frequencies and its attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lce_core.attention import AttentionScheme
from lce_core.errors import SpecError
from lce_core.methods import METHODS, Method
from lce_core.models import MODELS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.inspection import Head, inspect_frequencies
from lce_core.study.plain_yaml import plain_yaml


@dataclass(frozen=True)
class Inspection:
    """What `lce rope inspect` shows: a method's frequencies and attention on one base model."""

    method: Method
    model: str
    geometry: RopeGeometry
    lengths: ContextLengths
    table: RopeTable
    scheme: AttentionScheme | None
    """The method's attention scheme; None for full causal attention."""
    base: Head
    """Rotated pairs of the unmodified base model at the same lengths."""
    heads: tuple[Head, ...]
    """The base model with the method: one entry if all heads are alike, else one for each head."""

    @property
    def changes_frequencies(self) -> bool:
        """True if the method's frequencies differ from the base model's."""
        return any(
            pair.wavelength_before != pair.wavelength_after
            for head in self.heads
            for pair in head.pairs
        )

    @property
    def changes_attention_alone(self) -> bool:
        """True if the method changes positions only inside its attention.

        The table of frequencies then shows no difference to the base model.
        """
        return self.scheme is not None and not self.changes_frequencies

    @property
    def notes(self) -> list[str]:
        """One sentence for each property of the method that the table does not show."""
        notes = []
        if self.scheme is not None:
            sizes = ", ".join(f"{key} {value}" for key, value in vars(self.scheme).items())
            alone = (
                "Changes no frequency, but attention"
                if self.changes_attention_alone
                else ("Changes attention as well")
            )
            summary = (type(self.scheme).__doc__ or "").split("\n", 1)[0].rstrip(".")
            notes.append(
                f"{alone}: {summary[0].lower()}{summary[1:]}{f' ({sizes})' if sizes else ''}."
            )
        if self.method.rotary is not None:
            notes.append("Learns its frequencies: these are the ones before training.")
        if self.method.length_dependent(self.geometry, self.lengths):
            notes.append("Frequencies follow the length of the request (--request).")
        if self.table.attention_factor != 1:
            notes.append(
                f"Attention factor {self.table.attention_factor:.6g}: logits are multiplied by"
                f" its square, {self.table.attention_factor**2:.6g}."
            )
        return notes

    def head(self, number: int | None) -> Head | None:
        """Return the head whose pairs are shown; None if heads differ and `number` is None.

        Raises:
          SpecError: if there is no such head.
        """
        if len(self.heads) == 1 and number is None:
            return self.heads[0]
        if number is None:
            return None
        if self.heads[0].head is None or not 0 <= number < len(self.heads):
            heads = f"0 to {len(self.heads) - 1}" if self.heads[0].head is not None else "no head"
            raise SpecError(
                "--head",
                f"{number} for {self.method.plugin_name}",
                f"a head with frequencies of its own: {heads}",
                "choose one of them, or leave it out",
            )
        return self.heads[number]


def inspect_method(
    name: str, parameters: Sequence[str], model: str, target: int, request: int | None
) -> Inspection:
    """Compute the frequencies and the attention of a method on a base model.

    Args:
      name: the method's name.
      parameters: the method's parameters, each KEY=VALUE with the value as in a study file.
      model: the base model's name.
      target: target context in tokens to which the study would extend.
      request: length of the request in tokens; None for the target.

    Raises:
      SpecError: if a name, parameter or length is invalid.
    """
    method = METHODS.parse({"name": name, **_parsed(parameters)}, "lce rope inspect")
    geometry = MODELS.parse({"name": model}, "--model").geometry
    lengths = ContextLengths(
        geometry.trained_context, target, target if request is None else request
    )
    method.check(geometry, lengths)
    table = method.rope_table(geometry, lengths)
    before = geometry.inv_freq()
    (base,) = inspect_frequencies(before, before, lengths)
    return Inspection(
        method,
        model,
        geometry,
        lengths,
        table,
        method.attention(geometry, lengths),
        base,
        tuple(inspect_frequencies(before, table.inv_freq, lengths)),
    )


def _parsed(parameters: Sequence[str]) -> dict[str, Any]:
    found = {}
    for given in parameters:
        key, equals, value = given.partition("=")
        if not (key and equals):
            raise SpecError("--set", repr(given), "the form KEY=VALUE", "add the parameter's name")
        try:
            found[key] = plain_yaml(value, f"--set {key}")
        except SpecError:
            raise SpecError(
                f"--set {key}", repr(value), "a value as in a study file", "correct the value"
            ) from None
    return found
