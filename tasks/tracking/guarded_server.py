"""`python -m tasks.tracking.guarded_server HOME PORT`: MLflow's UI and API, for the owner only.

`mlflow server` would start eight processes for unused jobs, and needs a database of users to ask
for passwords. This runs MLflow's ASGI application in one process, behind a guard.
"""

import os
import sys
import warnings
from pathlib import Path

from lce_core.access import SECRET_VARIABLE, Guard
from tasks.tracking.database import artifact_root, tracking_uri

ADDRESS = "127.0.0.1"
OPEN_PATHS = ("/health",)
"""Paths that need no secret, so that a process can test whether the server is ready."""
NO_ASSISTANT = {"mlflow.assistant.fab.autoOpenedOnFirstLoad_v1": "true"}
"""Entry of the browser's local storage that says that MLflow's assistant has opened once. Otherwise
it opens at the first visit and takes the width of two charts."""


def settings(home: Path, port: int) -> dict[str, str]:
    from mlflow.server import constants

    hosts = [f"{name}:{port}" for name in (ADDRESS, "localhost")]
    return {
        constants.BACKEND_STORE_URI_ENV_VAR: tracking_uri(home),
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: artifact_root(home).as_uri(),
        "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
        "MLFLOW_SERVER_ALLOWED_HOSTS": ",".join(hosts),
        "MLFLOW_SERVER_CORS_ALLOWED_ORIGINS": ",".join(f"http://{host}" for host in hosts),
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "DO_NOT_TRACK": "true",
    }


def serve(home: Path, port: int, secret: str) -> None:
    """Serve on loopback until SIGINT or SIGTERM; MLflow's database must exist."""
    import uvicorn

    os.environ.update(settings(home, port))
    with warnings.catch_warnings():
        # MLflow uses deprecated parts of Starlette.
        warnings.simplefilter("ignore", DeprecationWarning)
        from mlflow.server.fastapi_app import app

    guarded = Guard(app, secret, port, open_paths=OPEN_PATHS, local_storage=NO_ASSISTANT)
    uvicorn.run(guarded, host=ADDRESS, port=port, access_log=False)


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), os.environ.pop(SECRET_VARIABLE))
