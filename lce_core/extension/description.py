"""Frequencies and attention scheme of a method for one request."""

from __future__ import annotations

from lce_core.attention import AttentionScheme
from lce_core.attention.rotation import check_heads
from lce_core.attention.schemes import FullCausal
from lce_core.errors import SpecError
from lce_core.methods import Method
from lce_core.rope import ContextLengths, RopeGeometry, RopeTable


def described(
    method: Method, geometry: RopeGeometry, lengths: ContextLengths, *, training: bool
) -> tuple[RopeTable, AttentionScheme | None]:
    """Return the method's table and attention scheme at these lengths; None means stock attention.

    Raises:
      SpecError: if the table does not fit the model's heads.
    """
    table = method.rope_table(geometry, lengths)
    attention = method.training_attention if training else method.attention
    scheme = attention(geometry, lengths)
    if table.inv_freq.shape[-1] != geometry.num_pairs:
        raise SpecError(
            method.plugin_name,
            f"{table.inv_freq.shape[-1]} frequencies",
            f"one frequency for each of the {geometry.num_pairs} pairs",
            "compute them from geometry.rotary_dim",
        )
    check_heads(table, geometry.num_heads, geometry.num_kv_heads)
    if scheme is None and table.inv_freq.ndim == 2:
        scheme = FullCausal()
    return table, scheme
