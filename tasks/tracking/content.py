"""What one MLflow run is to hold, as plain data: no MLflow in here.

It follows from plan.json and the records alone: two stores with equal records give equal contents,
and a content's digest tells whether a run that is already there needs rewriting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from lce_core.store.identity import fingerprint

FORMAT = 3
"""Raised when the same records are to be shown differently: all runs are then rewritten."""

RUN_KEY = "lce.run_key"
"""Tag that says which run of its study this one is; nothing else names it for good."""

NOTE = "mlflow.note.content"
"""Tag that the UI shows as the description of an experiment or a run."""

COLOUR = "mlflow.runColor"
"""Tag from which the UI takes the colour of a run's line."""

KIND = "lce.kind"
"""Tag of a projected run: METHOD or SEED."""
METHOD = "method"
"""A row of the study: the mean over its seeds, whose runs are its children."""
SEED = "seed"
"""A row of the study at one seed."""


@dataclass(frozen=True)
class Metric:
    """One point of one metric."""

    key: str
    value: float
    timestamp: int
    """Milliseconds since the epoch: when the cell finished, never when it was logged."""
    step: int


@dataclass(frozen=True)
class RunContent:
    """Everything one MLflow run holds."""

    key: str
    """Unique in the study; the tag lce.run_key."""
    parent: str | None
    """Key of the run below which the UI folds this one."""
    name: str
    start: int
    """Earliest start of its records, in milliseconds since the epoch."""
    end: int
    params: Mapping[str, str]
    metrics: tuple[Metric, ...]
    tags: Mapping[str, str]
    files: Mapping[str, str]
    """Artifacts: file name to text."""

    @cached_property
    def digest(self) -> str:
        """sha256 over all of it; equal digests mean equal runs."""
        return fingerprint({"format": FORMAT, **asdict(self)}, self.key)
