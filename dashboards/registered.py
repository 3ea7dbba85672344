"""Sentence that says when a study's hypothesis and expectations were registered."""

from __future__ import annotations

from collections.abc import Sequence

from dashboards.contents import Row


def registered(versions: Sequence[Row]) -> str:
    """Return when each version was registered, and whether before the first result.

    Args:
      versions: rows of the view `registrations` for one study, oldest first.
    """
    return " ".join(
        f"{'Registered' if number == 0 else 'Changed'} {version['registered_at']:%Y-%m-%d %H:%M}"
        f" UTC {stage(version['results_before'])} (sha256 {version['sha256'][:12]})."
        for number, version in enumerate(versions)
    )


def stage(results: int) -> str:
    """Return "before the first result", or "after 3 results"."""
    if not results:
        return "before the first result"
    return f"after {results:,} result{'s'[: results > 1]}"
