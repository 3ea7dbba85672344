"""The content of an MLflow run as plain data, without MLflow.

The content depends only on plan.json and the records, so stores with equal records have runs with
equal content. If the digest of a run's content has changed, the run is written to MLflow again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property

from lce_core.store.identity import fingerprint

MAX_DATASET_DIGEST = 36
"""Characters of a data set's digest that MLflow stores."""
FORMAT = 4
"""Part of every run's digest. Increase it to make all stores write all their runs again."""

RUN_KEY = "lce.run_key"
"""Tag with the key of a run, unique in its study. A rewritten run keeps its key, but MLflow's own
run id changes."""

NOTE = "mlflow.note.content"
"""Tag with the text that MLflow's UI shows as the description of an experiment or run."""

COLOUR = "mlflow.runColor"
"""Tag from which the UI takes the colour of a run's line."""

KIND = "lce.kind"
"""Tag with the kind of a run written from the store: METHOD or SEED."""
METHOD = "method"
"""Kind of a run with a table row's means over seeds; the SEED runs of the row are its children."""
SEED = "seed"
"""Kind of a run with the scores of a table row at one seed."""


EXPORT = "export"
"""Kind of a run with a model that a user registered; writing the study again keeps it."""


@dataclass(frozen=True)
class MetricPoint:
    """One point of one metric."""

    key: str
    value: float
    timestamp: int
    """Time at which the cell finished (not when it was logged), in milliseconds since the epoch."""
    step: int


@dataclass(frozen=True)
class DatasetInput:
    """One data set that a run read."""

    name: str
    context: str
    """"training" or "evaluation"."""
    digest: str
    """The data's digest, cut to `MAX_DATASET_DIGEST` characters."""
    source: str
    """JSON object that names the corpus or data set and its parameters."""


@dataclass(frozen=True)
class RunContent:
    """The complete content of one MLflow run."""

    key: str
    """Identifies the run within the study; value of the tag `RUN_KEY`."""
    parent: str | None
    """Key of the parent run, under which the UI folds this run; None for a top-level run."""
    name: str
    start: int
    """Earliest start of the run's records, in milliseconds since the epoch."""
    end: int
    params: Mapping[str, str]
    metrics: tuple[MetricPoint, ...]
    tags: Mapping[str, str]
    datasets: tuple[DatasetInput, ...]
    files: Mapping[str, str]
    """The run's artifacts: content of each file, by file name."""

    @cached_property
    def digest(self) -> str:
        """sha256 of the whole content; equal digests mean equal runs."""
        return fingerprint({"format": FORMAT, **asdict(self)}, self.key)
