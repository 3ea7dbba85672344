"""Detect whether a flow run belongs to a deployment, without asking the server."""

from __future__ import annotations

from prefect.context import FlowRunContext


def is_deployed() -> bool:
    """Return True if the current flow run was created by a deployment.

    Prefect's own `prefect.runtime.deployment.id` asks the server, which may have died. This
    function reads the flow run from the context instead.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.deployment_id is not None
