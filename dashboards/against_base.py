"""Table of NLL differences from the base model, by method (rows) and band of positions."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.contents import Row
from dashboards.families import Variant
from lce_core import formats


def by_variant(rows: Sequence[Row]) -> dict[Variant, list[Row]]:
    """Return the rows of each variant (method, frozen or tuned), one per band of positions.

    Args:
      rows: rows of the view nll_against_base for one base model, task and length.
    """
    found: dict[Variant, list[Row]] = {}
    for row in rows:
        found.setdefault(Variant.of(row), []).append(row)
    return found


def band_label(band: Row) -> str:
    """Return the column header of a band, such as "1,024 to 2,048", or "to 1,024" for the first."""
    end = f"to {band['band_end']:,}"
    return f"{band['band_start']:,} {end}" if band["band_start"] else end


def difference_text(band: Row) -> str:
    """Format a band's NLL difference and its 95 % interval; "" if the difference is NULL."""
    if band["difference"] is None:
        return ""
    return formats.difference(band["difference"], band["ci_low"], band["ci_high"])
