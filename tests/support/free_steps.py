"""Steps with any values for a spec, for tests of what stores, shows or projects steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lce_core.store.artifacts import Attempt
from lce_core.store.steps import Step, make_step


@dataclass(frozen=True)
class FreeSpec:
    """A spec that is what it is given."""

    kind: str
    values: Mapping[str, Any]
    version: int = 1

    def identity(self) -> dict[str, Any]:
        return dict(self.values)


def free_step(
    kind: str,
    name: str,
    values: Mapping[str, Any],
    parents: Mapping[str, Step],
    axes: Mapping[str, Any] | None = None,
) -> Step:
    """A step of this kind that depends on these values."""
    return make_step(FreeSpec(kind, values), name, parents, axes)


def write_file(attempt: Attempt) -> dict[str, Any]:
    """Compute a step without a result: write one file."""
    (attempt.out / "file").write_text("a", encoding="utf-8")
    return {}
