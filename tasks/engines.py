"""What an execution may use, by its engine."""

from __future__ import annotations

from lce_core.execution import LOCAL, Execution
from tasks.machines import Machines, this_machine
from tasks.ray_engine.cluster import nodes_of


def machines_for(execution: Execution) -> Machines:
    """This machine, or the nodes of a cluster; errors of `tasks.ray_engine.cluster.connected`."""
    return this_machine(execution) if execution.engine == LOCAL else nodes_of(execution)
