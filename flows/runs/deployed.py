"""Detect whether a flow run belongs to a deployment, without asking the server."""

from __future__ import annotations

from prefect.context import FlowRunContext


def is_deployed() -> bool:
    """Return True if a deployment created the current flow run.

    `prefect.runtime.deployment.id` queries the server, which may have died.
    """
    context = FlowRunContext.get()
    run = context.flow_run if context else None
    return run is not None and run.deployment_id is not None
