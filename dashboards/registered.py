"""Sentences on when a run registered a study's expectations, and on the looks that tested them."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.contents import Row
from lce_core.study.variants import variant_label


def registered(versions: Sequence[Row], settled: Sequence[Row] = ()) -> str:
    """Return when each version was registered, if that was before any result, and the looks.

    Args:
      versions: rows of the view `registrations` for one study, oldest first.
      settled: variants that looks have settled (`Contents.settled`).
    """
    registrations = " ".join(
        f"{'Registered' if number == 0 else 'Changed'} {version['registered_at']:%Y-%m-%d %H:%M}"
        f" UTC {stage(version['results_before'])} (sha256 {version['sha256'][:12]})."
        for number, version in enumerate(versions)
    )
    looks = versions[-1]["looks"] if versions else None
    return f"{registrations} {_looks(looks, settled)}" if looks else registrations


def _looks(looks: Sequence[int], settled: Sequence[Row]) -> str:
    from lce_core.statistics.significance import (
        looks_in_words,
    )  # imports scipy, which others do not need

    names = ", ".join(
        f"{variant_label(one['method'], one['frozen'])} after {one['num_seeds']} seeds"
        for one in settled
    )
    return f"Looks at {looks_in_words(looks)}; settled: {names or 'no method yet'}."


def stage(results: int) -> str:
    """Return "before the first result", or "after 3 results"."""
    if not results:
        return "before the first result"
    return f"after {results:,} result{'s'[: results > 1]}"
