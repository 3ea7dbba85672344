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
        f" UTC {_stage(version['results_before'])} (sha256 {version['sha256'][:12]})."
        for number, version in enumerate(versions)
    )


def _stage(results: int) -> str:
    if not results:
        return "before the first result"
    return f"after {results:,} result{'s'[: results > 1]}"
