"""Whether a flow run belongs to a deployment, asked of nobody."""

from __future__ import annotations

from prefect.context import FlowRunContext


def is_deployed() -> bool:
    """Whether the flow run in which this is called was made by a deployment.

    `prefect.runtime.deployment.id` asks the server, which may just have died; the run is at hand.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.deployment_id is not None
