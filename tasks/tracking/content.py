"""The content of an MLflow run as plain data, without MLflow.

It depends only on plan.json and the records, so stores with equal records have runs with equal
content. A run whose digest has changed is written again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from lce_core.store.identity import fingerprint

MAX_DATASET_DIGEST = 36
"""MLflow's limit in characters."""
FORMAT = 4
"""Part of every digest; an increase rewrites all runs of all stores."""

RUN_KEY = "lce.run_key"
"""Tag that identifies a run in its study; MLflow's own run id changes when it is rewritten."""

NOTE = "mlflow.note.content"
"""Tag with the UI's description of an experiment or run."""

COLOUR = "mlflow.runColor"
"""Tag with the colour of a run's line."""

KIND = "lce.kind"
"""Tag of a run written from the store: METHOD or SEED."""
METHOD = "method"
"""A table row's means over seeds, the parent of its SEED runs."""
SEED = "seed"
"""A table row's scores at one seed."""


EXPORT = "export"
"""A model that a user registered; writing the study again keeps it."""


@dataclass(frozen=True)
class MetricPoint:
    """One point of one metric."""

    key: str
    value: float
    timestamp: int
    """Time at which the cell finished (not was logged), in milliseconds since the epoch."""
    step: int


@dataclass(frozen=True)
class DatasetInput:
    """One data set that a run read."""

    name: str
    context: str
    """"training" or "evaluation"."""
    digest: str
    """Cut to `MAX_DATASET_DIGEST` characters."""
    source: str
    """JSON object that names the corpus or data set and its parameters."""


@dataclass(frozen=True)
class RunContent:
    """The complete content of one MLflow run."""

    key: str
    """Value of the tag `RUN_KEY`."""
    parent: str | None
    """Key of the run under which the UI folds this one."""
    name: str
    start: int
    """Earliest start of the run's records, in milliseconds since the epoch."""
    end: int
    params: Mapping[str, str]
    metrics: tuple[MetricPoint, ...]
    tags: Mapping[str, str]
    datasets: tuple[DatasetInput, ...]
    files: Mapping[str, str]
    """Content by file name."""

    @cached_property
    def digest(self) -> str:
        """sha256 of the whole content; equal digests mean equal runs."""
        return fingerprint({"format": FORMAT, **asdict(self)}, self.key)
