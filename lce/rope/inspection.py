"""`lce rope inspect`: compute a method's frequencies and attention on one base model."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lce_core.attention import AttentionScheme, LayerAttention
from lce_core.errors import SpecError
from lce_core.methods import METHODS, Applied, Method, in_heads, own_layers
from lce_core.models import MODELS
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.inspection import Head, inspect_frequencies
from lce_core.study.plain_yaml import plain_yaml
from lce_core.study.plan_checks import check_method


@dataclass(frozen=True)
class Inspection:
    """Frequencies and attention of a method on a base model, for one request length."""

    method: Method
    model: str
    geometry: RopeGeometry
    lengths: ContextLengths
    table: RopeTable
    scheme: AttentionScheme | None
    base: Head
    heads: tuple[Head, ...]
    """Rotated pairs with the method: one entry per head, or one entry if all heads share them."""
    layers: tuple[LayerAttention | None, ...]
    """Frequencies and attention of each layer that differs; None for all other layers."""

    @property
    def changes_frequencies(self) -> bool:
        return any(
            pair.wavelength_before != pair.wavelength_after
            for head in self.heads
            for pair in head.pairs
        )

    @property
    def changes_attention_alone(self) -> bool:
        return self.scheme is not None and not self.changes_frequencies

    @property
    def notes(self) -> list[str]:
        notes = []
        if self.scheme is not None:
            alone = (
                "Changes only attention" if self.changes_attention_alone else "Changes attention"
            )
            notes.append(f"{alone}: {_summary(self.scheme)}.")
        own: dict[object, tuple[LayerAttention, list[str]]] = {}
        for index, layer in enumerate(self.layers):
            if layer is not None:
                own.setdefault(layer.key, (layer, []))[1].append(str(index))
        notes += [
            f"Layers that differ ({len(numbers)} of {len(self.layers)}; the first layer is 0):"
            f" {', '.join(numbers)}. {_described(layer)}."
            for layer, numbers in own.values()
        ]
        if self.method.rotary is not None:
            notes.append("Learns its frequencies in training; shown are the untrained ones.")
        if self.method.length_dependent(self.geometry, self.lengths):
            notes.append("The method depends on the request length (--request).")
        if self.method.logit_scale is not None:
            notes.append(
                "Scores of a query that sees n tokens are multiplied by ln n /"
                f" ln {self.lengths.trained:,}, at least 1."
            )
        if self.table.attention_factor != 1:
            notes.append(
                f"Attention factor {self.table.attention_factor:.6g}: logits are multiplied by"
                f" its square, {self.table.attention_factor**2:.6g}."
            )
        return notes

    def head(self, number: int | None) -> Head | None:
        """Return the pairs of head `number`; by default those that all heads share, if any."""
        if len(self.heads) == 1 and number is None:
            return self.heads[0]
        if number is None:
            return None
        if self.heads[0].head is None or not 0 <= number < len(self.heads):
            got = f"{number} for method {self.method.plugin_name!r}"
            if self.heads[0].head is None:
                expected, remedy = "no --head, because all its heads share the same frequencies", ""
            else:
                expected, remedy = f"a head from 0 to {len(self.heads) - 1}", "choose a head, or "
            raise SpecError("--head", got, expected, f"{remedy}omit --head")
        return self.heads[number]


def inspect_method(
    name: str, parameters: Sequence[str], model: str, target: int, request: int | None
) -> Inspection:
    """Compute a method on a base model; `parameters` are "KEY=VALUE" as in a study file."""
    method = METHODS.parse({"name": name, **_parsed(parameters)}, "lce rope inspect")
    base_model = MODELS.parse({"name": model}, "--model")
    geometry = base_model.geometry
    lengths = ContextLengths(
        geometry.trained_context, target, target if request is None else request
    )
    check_method(method, base_model, lengths)
    table = in_heads(method, method.rope_table(geometry, lengths), geometry)
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
        tuple(own_layers(Applied(method, geometry, lengths, base_model.shape.num_layers))),
    )


def _summary(scheme: AttentionScheme) -> str:
    sizes = ", ".join(f"{key} {value}" for key, value in vars(scheme).items())
    summary = (type(scheme).__doc__ or "").split("\n", 1)[0].rstrip(".")
    return f"{summary[0].lower()}{summary[1:]}{f' ({sizes})' if sizes else ''}"


def _described(layer: LayerAttention) -> str:
    table = layer.table.inv_freq
    slowest = f"wavelengths up to {math.tau / table.min():,.0f} tokens" if table.all() else ""
    pairs = f"{(table == 0).sum()} of {table.size} pairs without rotation"
    rotation = "No rotation" if not layer.table.rotates else slowest.capitalize() or pairs
    attention = "full attention" if layer.scheme is None else _summary(layer.scheme)
    return f"{rotation}; {attention}"


def _parsed(parameters: Sequence[str]) -> dict[str, Any]:
    found = {}
    for given in parameters:
        key, equals, value = given.partition("=")
        if not (key and equals):
            raise SpecError(
                "--set", repr(given), "KEY=VALUE", "write the parameter's name before `=`"
            )
        try:
            found[key] = plain_yaml(value, f"--set {key}")
        except SpecError:
            raise SpecError(
                f"--set {key}", repr(value), "a YAML value, as in a study file", "correct the value"
            ) from None
    return found
