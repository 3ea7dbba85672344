"""`python -m tasks.tracking.guarded_server`: MLflow's UI and API of a store, for its owner alone.

`mlflow server` would start eight processes that run jobs, which a store has none of, and has no
password without a database of users. This is its ASGI application in one process, behind a guard.
"""

from __future__ import annotations

import argparse
import os
import warnings
from pathlib import Path

from lce_core.access import SECRET_VARIABLE, Guard
from tasks.tracking.database import artifact_root, tracking_uri

ADDRESS = "127.0.0.1"
OPEN_PATHS = ("/health",)
"""Whoever waits for the server needs no secret."""


def settings(home: Path, port: int) -> dict[str, str]:
    """Return the environment variables from which MLflow's application takes its settings."""
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
    """Serve on loopback until SIGINT or SIGTERM.

    Args:
      home: folder of the store, whose database exists.
      port: port on loopback; free.
      secret: what every request has to carry.
    """
    import uvicorn

    os.environ.update(settings(home, port))
    with warnings.catch_warnings():
        # MLflow's own use of Starlette.
        warnings.simplefilter("ignore", DeprecationWarning)
        from mlflow.server.fastapi_app import app

    guarded = Guard(app, secret, port, open_paths=OPEN_PATHS)
    uvicorn.run(guarded, host=ADDRESS, port=port, access_log=False)


def main() -> None:
    """Serve the store that the command line names."""
    parser = argparse.ArgumentParser(prog="python -m tasks.tracking.guarded_server")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args()
    serve(asked.home, asked.port, os.environ.pop(SECRET_VARIABLE))


if __name__ == "__main__":
    main()
