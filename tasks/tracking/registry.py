"""Register an exported model folder in MLflow's model registry.

It is stored unchanged: MLflow 3.17's own format for transformers models cannot be written with
transformers 5, because it reads a pipeline class that is now a text.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tasks.tracking.content import EXPORT, KIND
from tasks.tracking.destinations import Destination
from tasks.tracking.projection import experiment_of

_FOLDER = "model"


def register(
    where: Destination, plan: Mapping[str, Any], folder: Path, name: str, about: Mapping[str, str]
) -> str:
    """Copy a model folder to MLflow and add it to the registry as the next version of `name`.

    `about` are tags, such as variant and seed. Returns "models:/NAME/VERSION".

    Raises:
      ServiceError: if the team's server does not answer or refuses a request.
    """
    from mlflow.exceptions import MlflowException

    with experiment_of(where, plan) as (client, experiment_id):
        tags = {**where.tags(), KIND: EXPORT, **about}
        run_id = client.create_run(experiment_id, None, tags, f"export {name}").info.run_id
        client.log_artifacts(run_id, str(folder), _FOLDER)
        client.set_terminated(run_id, "FINISHED")
        with contextlib.suppress(MlflowException):  # it exists
            client.create_registered_model(name)
        version = client.create_model_version(
            name, f"runs:/{run_id}/{_FOLDER}", run_id, tags=dict(about)
        )
        return f"models:/{name}/{version.version}"
