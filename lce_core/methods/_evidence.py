"""Reference values of methods: how a file writes them down and how they are recomputed.

`Evidence.given` of a method is a mapping with

  quantity    "inv_freq" | "attention_factor" | "reach" | "distance" | "training_distance"
  geometry    RopeGeometry, target and request in tokens, parameters of the method
  pairs       indices of inv_freq to compare (quantity inv_freq)
  head        row of inv_freq where every head has its own, else absent
  positions   (query, key) pairs whose relative position is asked for (quantity distance, and
              training_distance for the scheme used in training); a third part says for which heads
              where the scheme tells heads apart

so that one contract test checks every method, also those of other folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lce_core.errors import SpecError
from lce_core.methods import Method
from lce_core.registry import Evidence
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
    """Inverse frequencies of some pairs; Llama-2-7B extended to 32768 tokens unless said."""
    given = _given("inv_freq", geometry, target, request, parameters)
    rows = {} if head is None else {"head": head}
    return Evidence({**given, **rows, "pairs": tuple(pairs)}, tuple(expected), origin)


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
    """One number of a method, or the relative positions of some (query, key) pairs."""
    given = _given(quantity, geometry, target, request, parameters)
    return Evidence({**given, "positions": tuple(positions)}, expected, origin)


def recompute(method: type[Method], given: Mapping[str, Any]) -> Any:
    """What `method` answers where its evidence gives an expected value."""
    geometry: RopeGeometry = given["geometry"]
    lengths = ContextLengths(geometry.trained_context, given["target"], given["request"])
    instance = method.model_validate(given["parameters"])
    instance.check(geometry, lengths)
    match given["quantity"]:
        case "inv_freq":
            inv_freq = instance.rope_table(geometry, lengths).inv_freq
            row = inv_freq[given["head"]] if "head" in given else inv_freq
            return tuple(float(frequency) for frequency in row[list(given["pairs"])])
        case "attention_factor":
            return instance.rope_table(geometry, lengths).attention_factor
        case "reach":
            return instance.reach(geometry, lengths)
        case "distance" | "training_distance" as quantity:
            training = quantity == "training_distance"
            attention = instance.training_attention if training else instance.attention
            scheme: Any = attention(geometry, lengths)
            return tuple(scheme.distance(*place) for place in given["positions"])
        case other:
            raise SpecError(
                f"{method.__module__}: EVIDENCE",
                f"the quantity {other!r}",
                "a quantity that the module's docstring lists",
                "correct the evidence's `quantity`",
            )


def _given(
    quantity: Quantity,
    geometry: RopeGeometry,
    target: int,
    request: int | None,
    parameters: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "quantity": quantity,
        "geometry": geometry,
        "target": target,
        "request": target if request is None else request,
        "parameters": dict(parameters),
    }
