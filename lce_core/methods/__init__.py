"""Context-extension methods, one plug-in file each; studies name a method by its file name.

A method states, as numpy arrays and dataclasses, which RoPE frequencies and which attention a model
must use. `lce_core.extension.extending` applies them to the model. The names of the methods follow
the tables of the papers.

Three lengths in tokens appear everywhere: the trained context of the base model, the target context
to which the study extends it, and the length of a request (a prompt with its answer, or a training
row).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Discriminator, Field, Tag, model_validator

from lce_core.attention import AttentionScheme
from lce_core.attention import LayerAttention as LayerAttention
from lce_core.errors import SpecError
from lce_core.methods._searching import Parameters as Parameters
from lce_core.methods._searching import ParameterSearch as ParameterSearch
from lce_core.methods._searching import SearchResult as SearchResult
from lce_core.recipe import Section
from lce_core.registry import Plugin, Registry
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.architectures import Architecture
from lce_core.store.identity import canonical_json

Family = Literal["none", "interpolation", "base", "dynamic", "approximate"]
"""What a method changes in the model. "none" changes nothing. "interpolation" divides RoPE
frequencies, as if positions were closer together. "base" changes the RoPE base. "dynamic" computes
new frequencies for each request from the request's length. "approximate" changes the attention."""


Base = Annotated[float, Field(gt=1)]
"""A RoPE base; above 1, so that frequencies decrease."""


class EveryNth(Section):
    """The last of every `every` layers or heads."""

    every: int = Field(ge=2)


Selection = Annotated[
    Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1), Tag("list")]
    | Annotated[EveryNth, Tag("every")],
    # The discriminator decides between both, so that a mistake yields one error message.
    Discriminator(
        lambda given: {list: "list", tuple: "list", dict: "every", EveryNth: "every"}.get(
            type(given)
        ),
        custom_error_type="selection",
        custom_error_message="Input should be a list of indices such as [0, 3], {every: 4} for the"
        " last of every 4, or no key for all",
    ),
]


class Method(Plugin):
    """Base class of all context-extension methods; by itself it changes nothing.

    Subclasses override the frequencies (`rope_table`), the attention (`attention`) or both. Results
    depend only on parameters, geometry and lengths, never on the order of requests.
    """

    family: ClassVar[Family]
    exact_attention: ClassVar[bool] = True
    """True if every token attends to all earlier tokens at their true distances, in training and at
    inference."""
    training: ClassVar[Literal["none", "optional", "required"]] = "optional"
    """Role of fine-tuning: "none" if the method works only at inference, "required" if it works
    only after fine-tuning, else "optional"."""
    rotary: ClassVar[str | None] = None
    """Import path "module:class" of a rotary module with trained parameters, called with (method,
    geometry, lengths, num_layers, seed=...). The seed determines the initial parameters."""

    layers: Selection | None = None
    """Layers that the method changes, counted from 0: a list, or {every: N} for the last of every N
    layers. Others keep the base model's frequencies and full attention. None means all layers. No
    method changes a model's sliding layers and layers without RoPE."""

    heads: Selection | None = None
    """Key-value heads, counted from 0 and with all their query heads, whose frequencies the method
    changes: a list, or {every: N} for the last of every N heads. Others keep the base model's. None
    means all heads."""

    logit_scale: Literal["log_length"] | None = None
    """Factor of all scores of a query that sees n tokens, in the layers that the method changes.
    "log_length" is ln n / ln C with the trained context C, at least 1: SSMax (arXiv:2501.19399)
    with s = 1 / ln C beyond C, and the unchanged model within it. SWAN-GPT (arXiv:2504.08719) also
    scales only at inference. None means 1."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        for key in ("layers", "heads"):
            chosen = getattr(self, key)
            if isinstance(chosen, tuple) and len({*chosen}) < len(chosen):
                raise SpecError(key, [*chosen], "each index once", "remove the repeated index")
        return self

    @model_validator(mode="after")
    def _the_rest_is_free(self) -> Self:
        key = "layers" if self.layers is not None else "heads"
        if getattr(self, key) is None:
            return self
        if type(self).insertion is not Method.insertion:
            reason = f"a token inserted into texts, which every {key[:-1]} sees"
        elif self.rotary is not None:
            reason = "trained frequencies"
        elif self.family == "none":
            reason = "a method that changes nothing"
        else:
            return self
        raise SpecError(key, reason, f"a method that can leave {key} unchanged", f"remove {key}")

    def changes(self, index: int) -> bool:
        """Return True if the method changes this layer, counted from 0."""
        return _is_selected(self.layers, index)

    def changes_head(self, index: int) -> bool:
        """Return True if the method changes this key-value head, counted from 0."""
        return _is_selected(self.heads, index)

    def rope_table(self, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
        """Return the RoPE table for requests of `lengths.request` tokens; by default unchanged."""
        return RopeTable(geometry.inv_freq())

    def attention(self, geometry: RopeGeometry, lengths: ContextLengths) -> AttentionScheme | None:
        """Return the attention that replaces full causal attention; None keeps full attention."""
        return None

    def training_attention(
        self, geometry: RopeGeometry, lengths: ContextLengths
    ) -> AttentionScheme | None:
        """Return the attention used in training; by default that of inference."""
        return self.attention(geometry, lengths)

    def training_positions(self, seed: int, lengths: ContextLengths) -> NDArray[np.int64] | None:
        """Return the position of every token of a training row; None if they are 0, 1, 2, ...

        Positions start at 0, increase, and stay below `lengths.target`; equal seeds give equal
        positions. `lengths.request` is the row's length. A row whose positions skip is short but
        trains long distances, with the frequencies of requests of `lengths.target` tokens.
        """
        return None

    def layer(
        self, index: int, geometry: RopeGeometry, lengths: ContextLengths
    ) -> LayerAttention | None:
        """Return RoPE table and attention of one layer, counted from 0.

        None means those of `rope_table` and `attention` (in training of `training_attention`).
        """
        return None

    def lora(self) -> LoRA | None:
        """Return the weights that fine-tuning trains and the LoRA rank; None trains all weights."""
        return None

    def insertion(self, geometry: RopeGeometry) -> TokenInsertion | None:
        """Return where the method inserts its own token into texts; None if it inserts none."""
        return None

    def stages(self, lengths: ContextLengths) -> tuple[TrainingStage, ...]:
        """Return all fine-tuning runs but the last; each starts from the previous run's weights."""
        return ()

    def reach(self, geometry: RopeGeometry, lengths: ContextLengths) -> int | None:
        """Return the longest request in tokens that the method supports; None for no limit."""
        return None

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        """Raise SpecError if the parameters do not fit the model or lengths."""

    def open_search(self) -> ParameterSearch | None:
        """Return the search that finds open parameters in its own step; None if all are given."""
        return None

    def settled(self, found: Mapping[str, Any]) -> Self:
        """Return the method with `SearchResult.parameters` of its search."""
        parameters = {**self.model_dump(mode="json", exclude_defaults=True), **found}
        given = {key: value for key, value in parameters.items() if value is not None}
        return type(self).model_validate_json(canonical_json(given, self.plugin_name))

    def stock_rope(self, lengths: ContextLengths) -> Mapping[str, Any] | None:
        """Return the method's `rope_parameters` for transformers; None if no `rope_type` fits.

        `lce export` writes them if they reproduce the method's table. It finds another base and a
        divisor of all frequencies by itself.
        """
        return None

    def length_dependent(self, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
        """Return True if a shorter request has other frequencies or another attention."""
        return False


class ScaledMethod(Method):
    """Base class of methods with one scale, by default the target context / trained context."""

    scale: float | None = None
    """Divisor of the frequencies; None means target context / trained context."""

    def scale_for(self, lengths: ContextLengths) -> float:
        return checked_scale(self, self.scale, lengths)

    def check(self, geometry: RopeGeometry, lengths: ContextLengths) -> None:
        self.scale_for(lengths)
        super().check(geometry, lengths)


class ApproximateMethod(Method):
    """Base class of methods that replace full attention by a scheme, for inference only."""

    family = "approximate"
    exact_attention = False
    training = "none"

    def check_trained(self, key: str, distance: int, geometry: RopeGeometry) -> None:
        """Raise SpecError if the parameter `key` makes a distance larger than those of training."""
        if distance >= geometry.trained_context:
            raise SpecError(
                f"{self.plugin_name}.{key}",
                distance,
                f"at most {geometry.trained_context - 1}, the largest distance in the model's"
                " training",
                f"write a smaller {key}, or remove the key",
            )


def _is_selected(selection: Selection | None, index: int) -> bool:
    if isinstance(selection, EveryNth):
        return (index + 1) % selection.every == 0
    return selection is None or index in selection


def request_table(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> RopeTable:
    """Return the RoPE table of all heads, with the base model's own attention factor."""
    return _whole(method, method.rope_table(geometry, lengths), geometry)


def in_heads(method: Method, table: RopeTable, geometry: RopeGeometry) -> RopeTable:
    """Return the method's table with the base model's frequencies in heads that stay unchanged."""
    if method.heads is None:
        return table
    changed = [method.changes_head(head) for head in range(geometry.num_kv_heads)]
    rows = np.repeat(changed, geometry.num_heads // geometry.num_kv_heads)[:, None]
    return replace(table, inv_freq=np.where(rows, table.inv_freq, geometry.inv_freq()))


def _whole(method: Method, table: RopeTable, geometry: RopeGeometry) -> RopeTable:
    table = in_heads(method, table, geometry)
    if geometry.attention_factor == 1.0:
        return table
    return replace(table, attention_factor=table.attention_factor * geometry.attention_factor)


class Applied(NamedTuple):
    """A method on a base model of these sizes, for requests of these lengths."""

    method: Method
    geometry: RopeGeometry
    lengths: ContextLengths
    num_layers: int

    def at(self, request: int) -> Applied:
        return self._replace(lengths=replace(self.lengths, request=request))


def layers_of(applied: Applied, *, training: bool = False) -> tuple[LayerAttention, ...]:
    """Return RoPE table and attention of each layer of a model; equal layers share one object."""
    method, geometry, lengths, _ = applied
    attention = method.training_attention if training else method.attention
    shared = LayerAttention(request_table(method, geometry, lengths), attention(geometry, lengths))
    distinct: dict[object, LayerAttention] = {}
    found = []
    for index, own in enumerate(own_layers(applied)):
        layer = own or shared
        if method.logit_scale is not None and method.changes(index):
            layer = replace(layer, log_base=geometry.trained_context)
        found.append(distinct.setdefault(layer.key, layer))
    return tuple(found)


def own_layers(applied: Applied) -> list[LayerAttention | None]:
    """Return frequencies and attention of layers that differ from the method's; None for others."""
    method, geometry, lengths, num_layers = applied
    unchanged = LayerAttention(RopeTable(geometry.inv_freq(), geometry.attention_factor), None)

    def own(index: int) -> LayerAttention | None:
        if not method.changes(index):
            return unchanged
        layer = method.layer(index, geometry, lengths)
        return layer and replace(layer, table=_whole(method, layer.table, geometry))

    return [own(index) for index in range(num_layers)]


def check_local(method: Method, *, pose: bool = False) -> None:
    """Raise SpecError if the method or PoSE cannot leave sliding-window layers unchanged."""
    if method.rotary is not None:
        reason = "a method whose frequencies are trained"
    elif pose or type(method).training_positions is not Method.training_positions:
        reason = "training rows whose positions skip"
    elif type(method).insertion is not Method.insertion:
        reason = "a method that inserts tokens, which would take places in the windows"
    else:
        return
    raise SpecError(
        method.plugin_name,
        f"{reason}, on a model with sliding layers",
        "a method that changes only layers with full attention",
        "choose another method, or a base model without sliding layers",
    )


def check_schemes(applied: Applied, on: Architecture) -> None:
    """Raise SpecError if a scheme lacks what the model, `logit_scale` or `heads` need."""
    method, geometry, lengths, _ = applied
    scaled = method.logit_scale is not None
    if scaled and method.rotary is not None:
        _refuse_scale(method, "trained frequencies, with the attention of stock models")
    given = [use(geometry, lengths) for use in (method.attention, method.training_attention)]
    own = [layer for layer in own_layers(applied) if layer]
    if method.heads is not None:
        # Within the trained context, the factor of a dynamic method is 1.
        beyond = replace(lengths, request=2 * max(lengths.trained, lengths.target))
        tables = [request_table(method, geometry, each) for each in (lengths, beyond)]
        tables += [layer.table for layer in own]
        factors = {table.attention_factor for table in tables} - {geometry.attention_factor}
        if factors:
            _refuse_heads(method, f"an attention factor of {max(factors):.4g}, for all heads")
    for scheme in (*given, *(layer.scheme for layer in own)):
        if scheme is None:
            continue
        if method.rotary is not None:
            raise SpecError(
                f"{method.plugin_name}.rotary",
                f"trained frequencies, with the attention scheme {type(scheme).__name__}",
                "the attention of stock models, because schemes rotate by the method's table",
                "remove `rotary` or the attention scheme from the method",
            )
        if method.heads is not None:
            _refuse_heads(method, f"the attention scheme {type(scheme).__name__}, for all heads")
        own_factor = type(scheme).query_factor is not AttentionScheme.query_factor
        if scaled and (own_factor or not (scheme.one_softmax and scheme.heads_alike)):
            _refuse_scale(method, f"the attention scheme {type(scheme).__name__}")
        for has, counts, what, flag in (
            (on.sinks, scheme.counts_sinks, "attention sinks", "counts_sinks"),
            (on.soft_caps, scheme.caps_scores, "softly capped scores", "caps_scores"),
        ):
            if has and not counts:
                raise SpecError(
                    f"{method.plugin_name}.attention",
                    f"the attention scheme {type(scheme).__name__}, on a model with {what}",
                    f"a scheme whose kernel computes them (`{flag}`)",
                    f"choose another method, or a base model without {what}",
                )


def _refuse_heads(method: Method, reason: str) -> NoReturn:
    raise SpecError(
        f"{method.plugin_name}.heads",
        reason,
        "a method that only changes frequencies, without an attention factor",
        "remove heads, or choose parameters with which the method is one",
    )


def _refuse_scale(method: Method, attention: str) -> NoReturn:
    raise SpecError(
        f"{method.plugin_name}.logit_scale",
        f"{method.logit_scale!r} for {attention}",
        "attention that is one softmax over the same keys in all heads, without a factor of queries"
        " of its own",
        "remove logit_scale, or choose another method",
    )


def as_stock(applied: Applied, *, training: bool = False) -> bool:
    """Return True if one table serves all layers and heads, with full, unscaled attention.

    A model has one attention function for requests of all lengths, so a longer request decides too:
    within the trained context, the layers that a dynamic method changes equal all others.
    """
    lengths = applied.lengths
    for request in (lengths.request, 2 * max(lengths.trained, lengths.target)):
        layers = layers_of(applied.at(request), training=training)
        first = layers[0]
        plain = first.scheme is None and first.log_base is None
        if not (plain and len({*layers}) == first.table.inv_freq.ndim == 1):
            return False
    return True


def begins_alike(shorter: Applied, longer: Applied) -> bool:
    """Return True if one pass over the longer text gives the outputs of both requests."""
    both = shorter, longer
    if any(one.method.length_dependent(one.geometry, one.lengths) for one in both):
        return False
    first, second = ([layer.key for layer in layers_of(one)] for one in both)
    return first == second


def checked_scale(method: Method, scale: float | None, lengths: ContextLengths) -> float:
    """Return `scale` or, if it is None, target / trained context; raise SpecError below 1."""
    chosen = lengths.target / lengths.trained if scale is None else scale
    if chosen < 1:
        by_default = f"{chosen:.4g} = target context {lengths.target} / trained {lengths.trained}"
        raise SpecError(
            f"{method.plugin_name}.scale",
            by_default if scale is None else scale,
            "a scale of at least 1",
            f"raise target_context to at least {lengths.trained} tokens"
            if scale is None
            else "raise the scale, or remove the key, so that it is target / trained context",
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


@dataclass(frozen=True)
class LoRA:
    """The weights that fine-tuning trains: low-rank updates (arXiv:2106.09685), and `whole`."""

    rank: int
    alpha: float
    """A low-rank update is the product of its two factors times alpha / rank."""
    targets: tuple[str, ...]
    """Names of the linear layers to update, such as "q_proj"."""
    whole: tuple[str, ...]
    """Parameters whose names contain one of these strings are trained directly, no others."""


@dataclass(frozen=True)
class TokenInsertion:
    """A token that the method inserts after every `block - 1` tokens of text."""

    block: int
    """Number of tokens in a block, including the inserted token."""
    train_length: int
    """Number of text tokens in one training sequence, without inserted tokens."""


METHODS: Registry[Method] = Registry("lce_core.methods", "METHOD", Method)
