"""Select the machines of an execution by its engine."""

from __future__ import annotations

from lce_core.execution import LOCAL, Execution
from tasks.machines import Machines, this_machine
from tasks.ray_engine.cluster import nodes_of


def machines_for(execution: Execution) -> Machines:
    """Return this machine, or the nodes of the cluster; raises as `cluster.connected` does."""
    return this_machine(execution) if execution.engine == LOCAL else nodes_of(execution)
