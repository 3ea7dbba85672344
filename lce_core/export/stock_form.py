"""Find the config.json keys with which stock software computes a method, or raise SpecError.

Stock software (transformers, vLLM) has one RoPE table for all heads, layers and texts, and attends
to all earlier tokens. A method whose table depends on the length of a request can be exported for
requests of one length only. The rope_type "dynamic" of transformers would not reproduce such a
method: its table depends on the longest text so far, and cached keys stay rotated by earlier ones.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lce_core.errors import SpecError
from lce_core.methods import Applied, Method, own_layers, request_table
from lce_core.models import LanguageModel
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable
from lce_core.rope.stated import PLAIN, stated_table
from lce_core.store.records import Record

_DIGITS = 12
"""Significant digits to which `_forms` rounds a base or factor that it derives from a table."""
_AGREEMENT = 1e-9
"""Largest allowed relative difference between a written entry's table and the method's."""


@dataclass(frozen=True)
class Subject:
    """The model to export: a variant of a study, its base model and its weights."""

    study: str
    variant: str
    base_model: LanguageModel
    method: Method
    target_context: int
    weights: Path
    training: Record | None = None
    digest: str | None = None


@dataclass(frozen=True, eq=False)
class StockForm:
    """A method as keys of a transformers configuration, valid for the stated request lengths."""

    rope_parameters: Mapping[str, Any]
    context: int
    """Context of the exported model in tokens: `max_position_embeddings`."""
    table: RopeTable
    follows_up_to: int | None
    """Longest request in tokens for which the method uses `table`; None if there is no limit."""
    only_at: int | None = None
    """The one request length in tokens for which the method uses `table`; None for any up to
    that."""


def stock_form(
    method: Method,
    base: LanguageModel,
    target: int,
    *,
    length: int | None = None,
    learned: Path | None = None,
) -> StockForm:
    """Return the configuration with which stock software computes the method.

    `length` is a request's; methods whose table depends on it require it. `learned` is the file of
    learned parameters of a method such as CLEX.
    """
    geometry, local = base.geometry, base.local
    trained, request = geometry.trained_context, length or target
    context, lengths = max(trained, request), ContextLengths(trained, target, request)
    _refuse_other_attention(method, base, lengths)
    edges = {1, trained, trained + 1, (trained + target) // 2, target, request}
    longest = max(context, target)
    follows = _differ(method, geometry, lengths, sorted(n for n in edges if n <= longest))
    if follows and length is None:
        raise SpecError(
            f"{method.plugin_name}.rope_table",
            "frequencies that depend on the length of each request",
            "frequencies that are the same for every request up to the target context",
            "add --length TOKENS to export the frequencies for requests of that many tokens",
        )
    table = _shared(method, learned_table(method, base, lengths, learned))
    own_factor = table.attention_factor / geometry.attention_factor
    if own_factor != 1.0 and geometry.rotary_dim < geometry.head_dim:
        got = (
            f"a factor of {own_factor:.4g} for whole heads of {geometry.head_dim} elements,"
            f" {geometry.rotary_dim} of which are rotated"
        )
        expected = "a factor of 1, because stock software multiplies only the rotated elements"
        raise _unsupported(method, "attention_factor", got, expected)
    by_kind = local is not None and local.theta is not None
    if local is not None and not by_kind:
        own = RopeTable(geometry.inv_freq(), geometry.attention_factor)
        if not table.agrees(own, 0.0):
            raise _unsupported(
                method,
                "rope_table",
                "new frequencies or attention factor for the layers with full attention alone",
                "the base model's own, because this stock architecture has one table for all layers"
                " and its layers with a sliding window keep theirs",
            )
    for parameters in _forms(method, geometry, lengths, table, context):
        if base.architecture.only_longrope and parameters["rope_type"] not in (PLAIN, "longrope"):
            continue
        if by_kind and not parameters.get("truncate", True):
            continue  # transformers ignores this key among the settings of a kind of layers
        if stated_table(parameters, geometry, context, context).agrees(table, _AGREEMENT):
            break
    else:
        got = f"{np.sum(table.inv_freq == 0)} of {geometry.num_pairs} pairs without rotation"
        expected = (
            "a frequency above 0 for every pair. Heads that rotate as a whole, without an attention"
            " factor, may also have the frequencies of one base, the lowest of them set to 0"
        )
        raise _unsupported(method, "rope_table", got, expected)
    if geometry.rotary_dim < geometry.head_dim:
        parameters["partial_rotary_factor"] = geometry.rotary_dim / geometry.head_dim
    if follows:
        return StockForm(parameters, context, table, length, only_at=length)
    beyond = _differ(method, geometry, lengths, [target, 2 * target, 64 * target])
    return StockForm(parameters, context, table, target if beyond else None)


def _unsupported(method: Method, part: str, got: str, expected: str) -> SpecError:
    remedy = "evaluate it with `lce run`, which supports it"
    return SpecError(f"{method.plugin_name}.{part}", got, expected, remedy)


def learned_table(
    method: Method, base: LanguageModel, lengths: ContextLengths, learned: Path | None
) -> RopeTable:
    table = request_table(method, base.geometry, lengths)
    if method.rotary is None:
        return table
    # Imported here, because most methods need no torch and should not wait for its import.
    from safetensors.torch import load_file

    from lce_core.extension.learned import make_rotary

    applied = Applied(method, base.geometry, lengths, base.shape.num_layers)
    rotary = make_rotary(applied, identity=False, seed=0)
    if learned is not None:
        rotary.load_state_dict(load_file(learned))
    rotary.begin(table, lengths.request)
    assert rotary.table is not None
    return rotary.table


def _refuse_other_attention(method: Method, base: LanguageModel, lengths: ContextLengths) -> None:
    geometry = base.geometry
    if method.logit_scale is not None:
        got = repr(method.logit_scale)
        expected = "no factor, because stock models have none that depends on the length"
        raise _unsupported(method, "logit_scale", got, expected)
    if any(own_layers(Applied(method, geometry, lengths, base.shape.num_layers))):
        got = "layers with frequencies or attention of their own"
        expected = "the same in all layers, because the model's stock architecture has no others"
        raise _unsupported(method, "layer", got, expected)
    if method.insertion(geometry) is not None:
        got = "a method that inserts a token of its own into every text"
        expected = "a method without inserted tokens, because stock software inserts none"
        raise _unsupported(method, "insertion", got, expected)
    if (scheme := method.attention(geometry, lengths)) is not None:
        got = f"the attention scheme {type(scheme).__name__}"
        expected = "full attention, because stock models compute no other"
        raise _unsupported(method, "attention", got, expected)


def _shared(method: Method, table: RopeTable) -> RopeTable:
    """Return the table in the shape (pairs,); refuse frequencies that differ by head."""
    if table.inv_freq.ndim == 1:
        return table
    first = table.inv_freq[0]
    if (table.inv_freq != first).any():
        kind = "heads" if method.rotary is None else "layers or heads"
        got = f"different frequencies for each of {len(table.inv_freq)} {kind}"
        expected = "one table for all layers and heads, because stock models have only one"
        raise _unsupported(method, "rope_table", got, expected)
    return replace(table, inv_freq=first.copy())


def _differ(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, requests: list[int]
) -> bool:
    sized = [replace(lengths, request=request) for request in requests]
    first, *others = [method.rope_table(geometry, one) for one in sized]
    return any(method.length_dependent(geometry, one) for one in sized) or not all(
        first.agrees(table, 0.0) for table in others
    )


def _forms(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, table: RopeTable, context: int
) -> Iterator[dict[str, Any]]:
    """Yield `rope_parameters` that may reproduce the table, those that most programs read first."""
    own, dim = replace(geometry, scaling=None).inv_freq(), geometry.rotary_dim
    if not table.inv_freq.all():
        yield from _proportional(geometry, table)
        return
    if table.attention_factor == 1.0:
        yield {"rope_type": PLAIN, "rope_theta": geometry.theta}
        if dim > 2:
            base = _rounded(table.inv_freq[-1] ** (-dim / (dim - 2)))
            yield {"rope_type": PLAIN, "rope_theta": base}
        factor = _rounded(own[0] / table.inv_freq[0])
        yield {"rope_type": "linear", "rope_theta": geometry.theta, "factor": factor}
    if known := method.stock_rope(lengths):
        yield {"rope_theta": geometry.theta, **known}
    factors = [float(factor) for factor in own / table.inv_freq]
    longrope = {
        "rope_type": "longrope",
        "rope_theta": geometry.theta,
        # Other programs derive an attention factor from the ratio of the two contexts, here 1.
        "factor": 1.0,
        "original_max_position_embeddings": context,
        "short_factor": factors,
        "long_factor": factors,
        "attention_factor": table.attention_factor,
    }
    if table.attention_factor != 1.0:
        # vLLM reads the factor under these names and uses 1 without them. transformers warns that
        # it does not know them.
        longrope |= {f"{kind}_mscale": table.attention_factor for kind in ("short", "long")}
    yield longrope


def _proportional(geometry: RopeGeometry, table: RopeTable) -> Iterator[dict[str, Any]]:
    kept = int(np.count_nonzero(table.inv_freq))
    if table.attention_factor != 1.0 or geometry.rotary_dim < geometry.head_dim:
        return
    # transformers rounds share * head_dim / 2 down, so a share just below its fraction is raised.
    share = kept / geometry.num_pairs
    if int(share * geometry.rotary_dim // 2) < kept:
        share = math.nextafter(share, 1)
    thetas = [geometry.theta]
    if kept > 1:
        last = kept - 1
        thetas.append(_rounded(table.inv_freq[last] ** (-geometry.num_pairs / last)))
    for theta in thetas:
        yield {"rope_type": "proportional", "rope_theta": theta, "partial_rotary_factor": share}


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
