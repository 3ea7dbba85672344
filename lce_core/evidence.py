"""Reference values of plug-ins: how files state them, and how they are recomputed.

Design: the plug-in's own code must reproduce a value, never a second formula beside it.
`frequencies` and `value` state results of a method for one base model and target; `calls` those of
any function or method of a plug-in. `computation` turns either into a call without arguments, so
that contract tests treat all plug-ins alike, including those of other folders, and can see which
code ran.
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
"""Origin of values computed independently of this package."""

Quantity = Literal["inv_freq", "attention_factor", "reach", "distance", "training_distance"]


@dataclass(frozen=True)
class OfMethod:
    """A result of a context-extension method for one base model, target and request length."""

    quantity: Quantity
    geometry: RopeGeometry
    target: int
    """Context in tokens that the study extends to."""
    request: int
    """Length of the request in tokens."""
    parameters: Mapping[str, Any]
    pairs: tuple[int, ...] = ()
    """Indices of inv_freq to compare."""
    head: int | None = None
    """Index of the head whose frequencies are compared, if every head has its own."""
    positions: tuple[tuple[int, ...], ...] = ()
    """(query, key) pairs whose relative position is compared; a third element selects the group of
    heads, if the scheme distinguishes them."""


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
    """Who computed the value: paper table, repository file at a commit, or an exact identity."""
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
    **parameters: Any,
) -> Evidence:
    """Declare the inverse frequencies that a method must give for some pairs.

    The defaults are Llama-2-7B, a target of 32,768 tokens and a request of that length.
    """
    request = target if request is None else request
    subject = OfMethod("inv_freq", geometry, target, request, parameters, tuple(pairs), head)
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
    **parameters: Any,
) -> Evidence:
    """Declare a number that a method must give, or the distances of some (query, key) pairs."""
    request = target if request is None else request
    subject = OfMethod(
        quantity, geometry, target, request, parameters, positions=tuple(positions)
    )  # fmt: skip
    return Evidence(subject, expected, origin, 1e-6 if quantity == "attention_factor" else 0.0)


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
    """Declare the result that `function(**arguments)` must give.

    Args:
      function: a function of the plug-in's module, or a method of its class.
      expected: its result; floats are compared with `tolerance`.
      origin: who computed it.
      parameters: parameters of the plug-in whose method is called (`{}` for its defaults).
      tolerance: relative tolerance.
      **arguments: arguments of the call.
    """
    return Evidence(OfFunction(function, arguments, parameters), expected, origin, tolerance)


def computation(plugin: type[Any], evidence: Evidence) -> Callable[[], Any]:
    """Return a function without arguments that recomputes one reference value of a plug-in.

    The plug-in and all other objects of the call are built and checked before it is returned.

    Raises:
      SpecError: if the evidence's parameters do not fit the model or the lengths.
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
    match subject.quantity:
        case "inv_freq":
            inv_freq = method.rope_table(geometry, lengths).inv_freq
            row = inv_freq if subject.head is None else inv_freq[subject.head]
            return tuple(float(frequency) for frequency in row[list(subject.pairs)])
        case "attention_factor":
            return method.rope_table(geometry, lengths).attention_factor
        case "reach":
            return method.reach(geometry, lengths)
        case "distance":
            scheme = method.attention(geometry, lengths)
        case "training_distance":
            scheme = method.training_attention(geometry, lengths)
    return tuple(scheme.distance(*place) for place in subject.positions)
