"""The content of an MLflow run as plain data, without MLflow.

The content depends only on plan.json and the records: stores with equal records give equal content.
The digest of a content tells whether an existing run must be rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from lce_core.store.identity import fingerprint

FORMAT = 3
"""Increase this to show the same records differently; all runs are then rewritten."""

RUN_KEY = "lce.run_key"
"""Tag with the run's key, unique in its study. MLflow's own run id changes when a run is rewritten.
"""

NOTE = "mlflow.note.content"
"""Tag that the UI shows as the description of an experiment or run."""

COLOUR = "mlflow.runColor"
"""Tag from which the UI takes the colour of a run's line."""

KIND = "lce.kind"
"""Tag with the kind of a run written from the store: METHOD or SEED."""
METHOD = "method"
"""Kind of the run that holds a table row's means over seeds; the seeds' runs are its children."""
SEED = "seed"
"""Kind of the run that holds a table row's scores at one seed."""


@dataclass(frozen=True)
class MetricPoint:
    """One point of one metric."""

    key: str
    value: float
    timestamp: int
    """Time at which the cell finished, in milliseconds since the epoch. Never the time of logging.
    """
    step: int


@dataclass(frozen=True)
class RunContent:
    """Everything that one MLflow run holds."""

    key: str
    """Unique within the study; value of the tag lce.run_key."""
    parent: str | None
    """Key of the parent run, under which the UI folds this run; None for a top-level run."""
    name: str
    start: int
    """Earliest start of the run's records, in milliseconds since the epoch."""
    end: int
    params: Mapping[str, str]
    metrics: tuple[MetricPoint, ...]
    tags: Mapping[str, str]
    files: Mapping[str, str]
    """Artifacts: text by file name."""

    @cached_property
    def digest(self) -> str:
        """sha256 of the whole content; equal digests mean equal runs."""
        return fingerprint({"format": FORMAT, **asdict(self)}, self.key)
