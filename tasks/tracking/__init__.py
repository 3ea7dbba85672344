"""Show the store's studies in MLflow, and training runs while they train.

The addresses of the pages are in `catalog.mlflow_pages`, because the dashboards, which must not
import `tasks`, need them too.
"""

from catalog.mlflow_pages import EXPERIMENTS_PATH, own_servers, pages_of, studies_with_pages
from tasks.tracking.database import (
    REJECTED,
    TeamServer,
    damage,
    database,
    has_usable_database,
    initialise,
    set_aside_if_damaged,
)
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
