"""Find the stock configuration that computes a method, or explain why there is none.

Stock software has one frequency table for all heads, layers and texts, caches rotated keys, and
attends to everything. A method whose table follows the length of a request can be exported for
requests of one length. transformers' "dynamic" form is not used for this: it follows the longest
text so far and reads cached keys that older tables rotated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lce_core.errors import SpecError
from lce_core.extension.stock_rope import agrees, statement
from lce_core.methods import Method
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable

_RUN = "evaluate it with `lce run`, which supports it"


@dataclass(frozen=True, eq=False)
class StockForm:
    """A method, stated as keys of a transformers configuration."""

    rope_parameters: Mapping[str, Any]
    context: int
    """Context of the exported model in tokens: `max_position_embeddings`."""
    table: RopeTable
    """Table that the keys describe, in float64."""
    follows_up_to: int | None
    """Longest request for which the method uses this table; None for no limit."""
    only_at: int | None = None
    """The only request length for which the method uses this table; None if it uses the table for
    other lengths too."""


def stock_form(
    method: Method,
    geometry: RopeGeometry,
    target: int,
    *,
    length: int | None = None,
    learned: Path | None = None,
) -> StockForm:
    """Return the configuration with which stock software computes the method.

    Args:
      method: the method, as at inference.
      geometry: geometry of the base model.
      target: context in tokens that the study extends to.
      length: request length in tokens, for methods whose table depends on it.
      learned: file with the method's learned parameters; None before training.

    Raises:
      SpecError: if no stock configuration computes the method; the message says why.
    """
    context = max(geometry.trained_context, length or target)
    lengths = ContextLengths(geometry.trained_context, target, length or target)
    _refuse_other_attention(method, geometry, lengths)
    follows = _follows_requests(method, geometry, lengths)
    if follows and length is None:
        raise SpecError(
            f"{method.plugin_name}.rope_table",
            "frequencies that follow the length of each request",
            "frequencies that are the same for every request up to the target context",
            "give --length TOKENS to export it as it treats requests of so many tokens",
        )
    table = _shared(method, request_table(method, geometry, lengths, learned))
    if table.attention_factor != 1.0 and geometry.rotary_dim < geometry.head_dim:
        raise SpecError(
            f"{method.plugin_name}.attention_factor",
            f"a factor of {table.attention_factor:.4g} for whole heads of {geometry.head_dim}"
            f" elements of which {geometry.rotary_dim} are rotated",
            "a factor of 1 for such a model, since stock software multiplies rotated elements only",
            _RUN,
        )
    parameters = statement(method, geometry, lengths, table, context)
    if follows:
        return StockForm(parameters, context, table, length, only_at=length)
    beyond = [replace(lengths, request=times * target) for times in (1, 2, 64)]
    limit = target if _differ(method, geometry, beyond) else None
    return StockForm(parameters, context, table, limit)


def request_table(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, learned: Path | None
) -> RopeTable:
    """Return the method's table for a request, including its learned parameters."""
    table = method.rope_table(geometry, lengths)
    if method.rotary is None:
        return table
    # Imported here: methods that learn frequencies need torch, others should not wait for it.
    from safetensors.torch import load_file

    from lce_core.extension.learned import make_rotary

    rotary = make_rotary(method, geometry, lengths, identity=False, seed=0)
    if learned is not None:
        rotary.load_state_dict(load_file(learned))
    rotary.begin(table, lengths.request)
    assert rotary.table is not None
    return rotary.table


def _refuse_other_attention(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths
) -> None:
    if method.insertion(geometry) is not None:
        raise SpecError(
            f"{method.plugin_name}.insertion",
            "a token of its own that it puts into every text",
            "plain text, the only input of stock software",
            _RUN,
        )
    scheme = method.attention(geometry, lengths)
    if scheme is not None:
        raise SpecError(
            f"{method.plugin_name}.attention",
            f"attention of its own ({type(scheme).__name__})",
            "full attention, the only kind that stock models have",
            _RUN,
        )


def _shared(method: Method, table: RopeTable) -> RopeTable:
    """Return the table in the shape (pairs,); raise SpecError if the heads' rows differ."""
    if table.inv_freq.ndim == 1:
        return table
    first = table.inv_freq[0]
    if (table.inv_freq != first).any():
        raise SpecError(
            f"{method.plugin_name}.rope_table",
            f"{len(table.inv_freq)} heads with frequencies of their own",
            "one table for all heads, as stock models have it",
            _RUN,
        )
    return replace(table, inv_freq=first.copy())


def _follows_requests(method: Method, geometry: RopeGeometry, lengths: ContextLengths) -> bool:
    """Return True if the method's table differs between requests of up to the target context."""
    trained, target = lengths.trained, lengths.target
    edges = {1, trained, trained + 1, (trained + target) // 2, target}
    requests = [replace(lengths, request=n) for n in sorted(edges) if n <= max(trained, target)]
    return _differ(method, geometry, requests)


def _differ(method: Method, geometry: RopeGeometry, requests: list[ContextLengths]) -> bool:
    first, *others = [method.rope_table(geometry, lengths) for lengths in requests]
    return any(method.length_dependent(geometry, lengths) for lengths in requests) or not all(
        agrees(first, table, 0.0) for table in others
    )
