"""The MLflow projection of the store, and training as it goes on.

  database        MLflow's database of a store: where it lies and who may write to it
  projection      a study's records as one experiment, rewritten only where they changed
  study_content   the runs of a study, as plain data
  method_content  the run of a row: the mean over its seeds
  seed_content    the run of a row at one seed
  content         what a run holds
  views           what the UI shows when it is opened: description and saved views
  live            training runs while they train
  guarded_server  MLflow's UI and API of a store, for its owner alone

Addresses of its pages: `catalog.mlflow_pages`, for those too who know no tasks.
"""

from catalog.mlflow_pages import EXPERIMENTS_PATH, pages_of, studies_with_pages
from tasks.tracking.database import (
    artifact_root,
    damage,
    database,
    initialise,
    is_here,
    set_aside_if_damaged,
    tracking_uri,
)
from tasks.tracking.projection import (
    ProjectionReport,
    is_current,
    logical_digest,
    project,
    unprojected,
)

__all__ = [
    "EXPERIMENTS_PATH",
    "ProjectionReport",
    "artifact_root",
    "damage",
    "database",
    "initialise",
    "is_current",
    "is_here",
    "logical_digest",
    "pages_of",
    "project",
    "set_aside_if_damaged",
    "studies_with_pages",
    "tracking_uri",
    "unprojected",
]
