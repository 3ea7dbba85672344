"""The worker of `lce up`, which runs only this checkout's flow.

In Prefect's own process worker, a flow run chooses the command, the environment and the working
directory, and its deployment chooses the entry point and the pull steps. This worker uses only the
parameters of a flow run. It fixes the command, environment and folder, and flow runs of other
deployments crash with an error that states the reason.
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

from flows.servers.deployments import ENTRYPOINT
from lce_core.errors import ServiceError

ROOT = Path(__file__).resolve().parents[2]
_MODULE = "flows.study.controlled_study"
_STEP = "prefect.deployments.steps.set_working_directory"
"""The only pull step of a deployment whose flow is in the folder where it was deployed."""


class StudyJob(process.ProcessJobConfiguration):
    """Configuration of every flow run's process: a fixed command, environment and folder."""

    @classmethod
    async def from_template_and_values(cls, *_: Any, **__: Any) -> StudyJob:
        """Return the fixed configuration; ignore the work pool's template and all job variables."""
        return cls(
            command=command_to_string([sys.executable, "-m", "prefect.engine"]),
            # With this entry point the engine finds the flow without its deployment. The plug-in
            # only serves commands that users type, so it is disabled.
            env={"PREFECT__FLOW_ENTRYPOINT": _MODULE, "PREFECT_PLUGINS_ENABLED": "false"},
            working_dir=ROOT,
            # Do not pipe the output: if the worker died, writing to the broken pipe would also
            # kill the flow.
            stream_output=False,
        )


class StudyWorker(process.ProcessWorker, ABC):  # ABC: Prefect does not register the class
    """A process worker for deployments of this checkout's flow."""

    job_configuration = StudyJob

    async def run(
        self,
        flow_run: FlowRun,
        configuration: process.ProcessJobConfiguration,
        task_status: Any = None,
    ) -> process.ProcessWorkerResult:
        """Run the flow in its own process and return the exit result."""
        deployment_id = flow_run.deployment_id
        deployment = await self.client.read_deployment(deployment_id) if deployment_id else None
        require_ours(flow_run.name, deployment)
        return await super().run(flow_run, configuration, task_status)


def require_ours(flow_run: str, deployment: DeploymentResponse | None) -> None:
    """Raise an error unless the flow run's deployment is one of this checkout's flow."""
    steps = [{_STEP: {"directory": str(ROOT)}}]
    if deployment and deployment.entrypoint == ENTRYPOINT and deployment.pull_steps == steps:
        return
    found = "a flow run without a deployment"
    if deployment:
        found = f"a deployment of {deployment.entrypoint} with pull steps {deployment.pull_steps}"
    raise ServiceError(
        f"flow run {flow_run}",
        found,
        f"a deployment of {ENTRYPOINT} in {ROOT}, the only flow that this worker runs",
        "deploy the flow to a work pool of your own, and start a worker for it with"
        " `prefect worker start --pool NAME`",
    )


async def _without_hooks(*_: Any, **__: Any) -> Flow[[], None]:
    return Flow(lambda: None, name="controlled-study")


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--pool", required=True)
    parser.add_argument("--name", required=True)
    arguments = parser.parse_args()
    # To run the hooks of a crashed or cancelled run, Prefect would load the deployment's flow. The
    # deployment may have changed since `require_ours` checked it. Our flow has no hooks, so load
    # an empty flow instead.
    vars(process)["load_flow_from_flow_run"] = _without_hooks
    setup_signal_handlers_worker(os.getpid(), "the worker", print)
    worker = StudyWorker(
        work_pool_name=arguments.pool, name=arguments.name, create_pool_if_not_found=False
    )
    with contextlib.suppress(asyncio.CancelledError, KeyboardInterrupt):
        asyncio.run(worker.start())


if __name__ == "__main__":
    main()
