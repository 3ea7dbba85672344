"""Reference values that a plug-in file lists in EVIDENCE, and how contract tests recompute them.

`frequencies` and `value` declare a result of a method for one base model and target context;
`calls` declares the result of any function of the plug-in's file. The contract tests recompute the
value and check that the call ran code of the plug-in's own file, not a copy of its formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lce_core.rope import ContextLengths, RopeGeometry

LLAMA2_7B = RopeGeometry(
    head_dim=128, rotary_dim=128, num_heads=32, num_kv_heads=32, theta=1e4, trained_context=4096
)
PHI2 = RopeGeometry(
    head_dim=80, rotary_dim=32, num_heads=32, num_kv_heads=32, theta=1e4, trained_context=2048
)

EXACT = "float64 evaluation of the formula by other code than this, printed to 7 digits"
"""Text for `Evidence.origin` if independent code evaluated the published formula."""

Quantity = Literal[
    "inv_freq", "attention_factor", "reach", "distance", "training_distance", "query_factor"
]


@dataclass(frozen=True)
class OfMethod:
    """A result of a context-extension method for one base model, target and request length."""

    quantity: Quantity
    geometry: RopeGeometry
    target: int
    """Context length in tokens to which the method extends the model."""
    request: int
    """Length in tokens of the processed sequence. Dynamic methods adapt their frequencies to it."""
    parameters: Mapping[str, Any]
    pairs: tuple[int, ...] = ()
    """Indices into inv_freq."""
    head: int | None = None
    """Attention head whose frequencies are compared; None if all heads share them."""
    positions: tuple[tuple[int, ...], ...] = ()
    """Token positions (query, key[, head group]) whose relative distance in the method's attention
    is compared; for "query_factor", positions of queries (query,)."""
    layer: int = 0


@dataclass(frozen=True)
class OfFunction:
    """A call of a function of the plug-in's module, or of a method of its class."""

    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parameters: Mapping[str, Any] | None = None
    """Parameters of the plug-in whose method is called; None for a function."""


@dataclass(frozen=True)
class Evidence:
    """One reference value that the contract tests recompute."""

    subject: OfMethod | OfFunction
    expected: Any
    origin: str
    """Paper's table, repository's file at a commit, or calculation."""
    tolerance: float = 0.0
    """Relative tolerance; 0 if the value is exact."""


def frequencies(
    expected: Sequence[float],
    origin: str,
    *,
    pairs: Sequence[int] = (0, 1, 16, 31, 32, 48, 63),
    geometry: RopeGeometry = LLAMA2_7B,
    target: int = 32768,
    request: int | None = None,
    head: int | None = None,
    layer: int = 0,
    **parameters: Any,
) -> Evidence:
    """Declare the RoPE frequencies (inv_freq) that a method must produce.

    Args:
      expected: Frequencies in radians per token, one for each index in `pairs`.
      target: Context length in tokens to which the method extends the model.
      request: Length in tokens of the processed sequence; None: `target`.
      head: Index of the attention head, for a method with frequencies per head.
    """
    request = target if request is None else request
    subject = OfMethod(
        "inv_freq", geometry, target, request, parameters, tuple(pairs), head, layer=layer
    )  # fmt: skip
    return Evidence(subject, tuple(expected), origin, tolerance=1e-6)


def value(
    quantity: Quantity,
    expected: Any,
    origin: str,
    *,
    geometry: RopeGeometry = LLAMA2_7B,
    target: int = 32768,
    request: int | None = None,
    positions: Sequence[tuple[int, ...]] = (),
    layer: int = 0,
    **parameters: Any,
) -> Evidence:
    """Declare the value of another quantity that a method must produce.

    Args:
      quantity: "attention_factor" (factor of queries and keys), "reach" (longest request in tokens
        that the method supports), "distance" or "training_distance" (relative distances in the
        method's attention at evaluation or in training), or "query_factor" (factor of queries).
      expected: The value; for distances and query factors, one for each entry of `positions`.
      target: Context length in tokens to which the method extends the model.
      request: Length in tokens of the processed sequence; None: `target`.
      positions: (query, key) pairs of token positions, for distances; (query,) for query factors.
    """
    request = target if request is None else request
    subject = OfMethod(
        quantity, geometry, target, request, parameters, positions=tuple(positions), layer=layer
    )  # fmt: skip
    rounded = quantity in ("attention_factor", "query_factor")
    return Evidence(subject, expected, origin, 1e-6 if rounded else 0.0)


def calls(
    function: Callable[..., Any],
    expected: Any,
    origin: str,
    /,
    *,
    parameters: Mapping[str, Any] | None = None,
    tolerance: float = 1e-12,
    **arguments: Any,
) -> Evidence:
    """Declare the result that `function(**arguments)` must return.

    `function` belongs to the plug-in's module, or to its class, built with `parameters` ({}:
    defaults). The tolerance is relative.
    """
    return Evidence(OfFunction(function, arguments, parameters), expected, origin, tolerance)


def computation(plugin: type[Any], evidence: Evidence) -> Callable[[], Any]:
    """Return a function without arguments that recomputes one reference value of a plug-in.

    The plug-in is built and checked first, so a call runs only the code that computes the value.
    """
    subject = evidence.subject
    if isinstance(subject, OfFunction):
        if subject.parameters is None:
            return lambda: subject.function(**subject.arguments)
        owner = plugin.model_validate(subject.parameters)
        return lambda: getattr(owner, subject.function.__name__)(**subject.arguments)
    method = plugin.model_validate(subject.parameters)
    lengths = ContextLengths(subject.geometry.trained_context, subject.target, subject.request)
    method.check(subject.geometry, lengths)
    return lambda: _of_method(method, subject, lengths)


def _of_method(method: Any, subject: OfMethod, lengths: ContextLengths) -> Any:
    geometry = subject.geometry
    own = method.layer(subject.layer, geometry, lengths)
    match subject.quantity:
        case "inv_freq" | "attention_factor":
            table = method.rope_table(geometry, lengths) if own is None else own.table
            if subject.quantity == "attention_factor":
                return table.attention_factor
            row = table.inv_freq if subject.head is None else table.inv_freq[subject.head]
            return tuple(float(frequency) for frequency in row[list(subject.pairs)])
        case "reach":
            return method.reach(geometry, lengths)
    trains = subject.quantity == "training_distance"
    attention = method.training_attention if trains else method.attention
    scheme = attention(geometry, lengths) if own is None else own.scheme
    found = scheme.query_factor if subject.quantity == "query_factor" else scheme.distance
    return tuple(found(*place) for place in subject.positions)
