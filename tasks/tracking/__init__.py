"""Show the store's studies in MLflow, and training runs while they train.

The addresses of the pages are in `catalog.mlflow_pages`, because the dashboards, which must not
import `tasks`, need them too.
"""

from catalog.mlflow_pages import EXPERIMENTS_PATH as EXPERIMENTS_PATH
from catalog.mlflow_pages import own_servers as own_servers
from catalog.mlflow_pages import pages_of as pages_of
from catalog.mlflow_pages import studies_with_pages as studies_with_pages
from tasks.tracking.database import REJECTED as REJECTED
from tasks.tracking.database import TeamServer as TeamServer
from tasks.tracking.database import damage as damage
from tasks.tracking.database import database as database
from tasks.tracking.database import has_usable_database as has_usable_database
from tasks.tracking.database import initialise as initialise
from tasks.tracking.database import set_aside_if_damaged as set_aside_if_damaged
from tasks.tracking.projection import is_current as is_current
from tasks.tracking.projection import project as project
from tasks.tracking.projection import unprojected as unprojected
