"""Reference values that a plug-in file lists in EVIDENCE, and how contract tests recompute them.

`frequencies` and `value` declare a result of a method for one base model and target context;
`calls` declares the result of any function of the plug-in's file. The contract tests recompute the
value and check that the call ran code of the plug-in's own file, not a copy of its formula.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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
class Evidence:
    """One reference value that the contract tests recompute."""

    of: Quantity | Callable[..., Any]
    """Quantity of a method, or function of the plug-in's module or class."""
    prepare: Callable[[type[Any]], Callable[[], Any]]
    """Builds and checks a plug-in; returns a function that runs only the code of the value."""
    expected: Any
    origin: str
    """Paper's table, repository's file at a commit, or calculation."""
    tolerance: float
    """Relative tolerance; 0 if the value is exact."""


def frequencies(
    expected: Sequence[float],
    origin: str,
    *,
    pairs: Sequence[int] = (0, 1, 16, 31, 32, 48, 63),
    head: int | None = None,
    **of_value: Any,
) -> Evidence:
    """Declare the RoPE frequencies (inv_freq) that a method must produce.

    `expected` are radians per token, one for each index in `pairs`. `head` is the index of the
    attention head, for a method with frequencies per head. See `value` for the rest.
    """
    return value("inv_freq", tuple(expected), origin, pairs=pairs, head=head, **of_value)


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
    pairs: Sequence[int] = (),
    head: int | None = None,
    **parameters: Any,
) -> Evidence:
    """Declare the value of a quantity that a method must produce.

    Args:
      quantity: "attention_factor" (factor of queries and keys), "reach" (longest request in tokens
        that the method supports), "distance" or "training_distance" (relative distances in the
        method's attention at evaluation or in training), or "query_factor" (factor of queries).
      expected: The value; for distances and query factors, one for each entry of `positions`.
      target: Context length in tokens to which the method extends the model.
      request: Length in tokens of the processed sequence, to which dynamic methods adapt their
        frequencies; None: `target`.
      positions: Token positions (query, key[, head group]), for distances; (query,) for query
        factors.
    """

    def prepare(plugin: type[Any]) -> Callable[[], Any]:
        method = plugin.model_validate(parameters)
        lengths = ContextLengths(geometry.trained_context, target, request or target)
        method.check(geometry, lengths)
        return lambda: recomputed(method, lengths)

    def recomputed(method: Any, lengths: ContextLengths) -> Any:
        own = method.layer(layer, geometry, lengths)
        match quantity:
            case "inv_freq" | "attention_factor":
                table = method.rope_table(geometry, lengths) if own is None else own.table
                if quantity == "attention_factor":
                    return table.attention_factor
                row = table.inv_freq if head is None else table.inv_freq[head]
                return tuple(float(frequency) for frequency in row[list(pairs)])
            case "reach":
                return method.reach(geometry, lengths)
        trains = quantity == "training_distance"
        attention = method.training_attention if trains else method.attention
        scheme = attention(geometry, lengths) if own is None else own.scheme
        found = scheme.query_factor if quantity == "query_factor" else scheme.distance
        return tuple(found(*place) for place in positions)

    is_exact = quantity in ("reach", "distance", "training_distance")
    return Evidence(quantity, prepare, expected, origin, 0.0 if is_exact else 1e-6)


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

    def prepare(plugin: type[Any]) -> Callable[[], Any]:
        if parameters is None:
            return partial(function, **arguments)
        owner = plugin.model_validate(parameters)
        return partial(getattr(owner, function.__name__), **arguments)

    return Evidence(function, prepare, expected, origin, tolerance)
