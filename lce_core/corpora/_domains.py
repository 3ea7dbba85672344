"""The domains that a study lists."""

from __future__ import annotations

from lce_core.errors import SpecError


def distinct_domains(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names as they are.

    Raises:
      SpecError: one is empty or occurs twice.
    """
    if len(set(names)) != len(names) or not all(names):
        raise SpecError(
            "domain_names",
            list(names),
            "distinct names that are not empty",
            "remove the repeated and empty ones",
        )
    return names
