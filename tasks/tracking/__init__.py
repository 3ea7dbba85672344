"""Show the store's studies in MLflow, and training runs while they train.

  database        MLflow's database of a store: location, creation, exclusive access
  destinations    which MLflow: the store's own database or a team's server
  projection      writes a study's records as one experiment; registers exported models
  study_content   the runs of a study: for each table row, the mean over its seeds and each seed
  views           the experiment's description and saved views in the UI
  live            shows training runs in progress
  guarded_server  MLflow's UI and API of a store, for its owner only

The addresses of the pages are in `catalog.mlflow_pages`, because the dashboards, which must not
import `tasks`, need them too.
"""

from catalog.mlflow_pages import EXPERIMENTS_PATH, own_servers, pages_of, studies_with_pages
from tasks.tracking.database import (
    REJECTED,
    damage,
    database,
    has_usable_database,
    initialise,
    set_aside_if_damaged,
)
from tasks.tracking.destinations import TeamServer
from tasks.tracking.projection import is_current, project, unprojected

__all__ = [
    "EXPERIMENTS_PATH",
    "REJECTED",
    "TeamServer",
    "damage",
    "database",
    "has_usable_database",
    "initialise",
    "is_current",
    "own_servers",
    "pages_of",
    "project",
    "set_aside_if_damaged",
    "studies_with_pages",
    "unprojected",
]
