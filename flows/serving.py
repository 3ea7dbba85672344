"""The worker of `lce up`: `python -m flows.serving` serves every shipped study as a deployment.

A served deployment has no work pool: Prefect starts the flow with a command of its own and ignores
the job variables of a flow run, such as another command or folder.
"""

import os
import re
import textwrap
from pathlib import Path

from prefect import serve
from prefect.client.schemas.objects import ConcurrencyLimitConfig, ConcurrencyLimitStrategy
from prefect.deployments.runner import RunnerDeployment
from prefect.types.entrypoint import EntrypointType

from flows.settings import shipped_studies, study_path
from flows.study import controlled_study
from lce_core.study.plain_yaml import plain_yaml


def deployments() -> list[RunnerDeployment]:
    any_study = "Any study: set the parameter `study`. Without parameters, the toy study."
    shipped = [_deployment(name, name, _description(name)) for name in shipped_studies()]
    return [_deployment(controlled_study.name, "toy", any_study), *shipped]


def _deployment(name: str, study: str, description: str) -> RunnerDeployment:
    return RunnerDeployment.from_flow(
        controlled_study,
        name,
        description=description,
        tags=["study", "gpu"] if re.search(r"\bGPUs?\b", description) else ["study"],
        parameters={"study": study},
        concurrency_limit=ConcurrencyLimitConfig(
            limit=1, collision_strategy=ConcurrencyLimitStrategy.ENQUEUE
        ),
        entrypoint_type=EntrypointType.MODULE_PATH,
    )


def _description(study: str) -> str:
    text = study_path(study).read_text(encoding="utf-8")
    comment = re.match(r"(?:# \S.*\n)+", text)
    assert comment, f"{study}.yaml begins with a comment"
    about = " ".join(line.removeprefix("# ") for line in comment[0].splitlines())
    parts = (about, f"Hypothesis: {plain_yaml(text, study)['hypothesis']}")
    return "\n\n".join(textwrap.fill(part, 90, break_on_hyphens=False) for part in parts)


if __name__ == "__main__":
    os.chdir(Path(__file__).parents[1])  # relative paths in a flow run's parameters start here
    # `pause_on_shutdown` would switch off the user's own schedules at `lce down`.
    serve(*deployments(), limit=None, pause_on_shutdown=False, print_starting_message=False)
