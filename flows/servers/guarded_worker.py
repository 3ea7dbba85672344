"""The worker of `lce up`: it runs this checkout's flow and nothing else.

Prefect's own process worker starts whatever command, environment and working directory a flow run
names, and whatever entry point and steps its deployment has. This one takes a flow run's parameters
only: command, environment and folder are fixed here, and flow runs of other deployments crash with
a sentence that says so.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from abc import ABC
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from prefect.client.schemas.objects import FlowRun
from prefect.client.schemas.responses import DeploymentResponse
from prefect.flows import Flow
from prefect.utilities.processutils import command_to_string, setup_signal_handlers_worker
from prefect.workers import process

from lce_core.errors import ServiceError

ROOT = Path(__file__).resolve().parents[2]
ENTRYPOINT = "flows/study.py:controlled_study"
"""The entry point of every deployment in prefect.yaml."""
_MODULE = "flows.study.controlled_study"
_STEP = "prefect.deployments.steps.set_working_directory"
"""The only step that `prefect deploy` writes for a flow in the folder of prefect.yaml."""


class StudyJob(process.ProcessJobConfiguration):
    """The fixed command, environment and folder that start every flow run."""

    @classmethod
    async def from_template_and_values(cls, *_: Any, **__: Any) -> StudyJob:
        """Return the fixed job; the work pool's template and all job variables are ignored."""
        return cls(
            command=command_to_string([sys.executable, "-m", "prefect.engine"]),
            # With this entry point the engine needs no deployment to find the flow. Flows need no
            # bare names, so the plug-in is disabled.
            env={"PREFECT__FLOW_ENTRYPOINT": _MODULE, "PREFECT_PLUGINS_ENABLED": "false"},
            working_dir=ROOT,
            # Do not pipe the output: if the worker died, the flow would write to a broken pipe and
            # die as well.
            stream_output=False,
        )


class StudyWorker(process.ProcessWorker, ABC):  # ABC: Prefect's registry keeps its own worker
    """A process worker for deployments of this checkout's flow."""

    job_configuration = StudyJob

    async def run(
        self,
        flow_run: FlowRun,
        configuration: process.ProcessJobConfiguration,
        task_status: Any = None,
    ) -> process.ProcessWorkerResult:
        """Run the flow in its own process and return the exit result.

        Raises:
          ServiceError: if the deployment is not of this checkout. Prefect shows it as the run's
            state.
        """
        number = flow_run.deployment_id
        require_ours(flow_run.name, await self.client.read_deployment(number) if number else None)
        return await super().run(flow_run, configuration, task_status)


def require_ours(flow_run: str, deployment: DeploymentResponse | None) -> None:
    """Raise an error unless the flow run's deployment is of this checkout's flow.

    Raises:
      ServiceError: if there is no deployment, or it has another entry point or other pull steps.
    """
    steps = [{_STEP: {"directory": str(ROOT)}}]
    if deployment and deployment.entrypoint == ENTRYPOINT and deployment.pull_steps == steps:
        return
    found = "a flow run without a deployment"
    if deployment:
        found = f"a deployment of {deployment.entrypoint} with the steps {deployment.pull_steps}"
    raise ServiceError(
        f"flow run {flow_run}",
        found,
        f"a deployment of {ENTRYPOINT} in {ROOT}, the only flow that this worker runs",
        "run it with a worker of your own: `prefect worker start`, for a work pool of your own",
    )


async def _without_hooks(*_: Any, **__: Any) -> Flow[[], None]:
    return Flow(lambda: None, name="controlled-study")


def main() -> None:
    """Poll the pool until SIGTERM or SIGINT."""
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--name", required=True)
    asked = parser.parse_args()
    # Prefect would load the flow from the deployment to run the hooks of a crashed or cancelled
    # run. The deployment may have changed since it was checked. Our flow has no hooks, so load
    # none.
    vars(process)["load_flow_from_flow_run"] = _without_hooks
    setup_signal_handlers_worker(os.getpid(), "the worker", print)
    worker = StudyWorker(work_pool_name=asked.pool, name=asked.name, create_pool_if_not_found=False)
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(worker.start())


if __name__ == "__main__":
    main()
