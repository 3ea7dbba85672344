"""Select the machines of an execution by its engine."""

from __future__ import annotations

from lce_core.execution import LOCAL, Execution
from tasks.machines import Machines, this_machine
from tasks.ray_engine.cluster import nodes_of


def machines_for(execution: Execution) -> Machines:
    """Return the hardware of this machine, or of all nodes of the Ray cluster.

    Raises:
      SpecError, ServiceError: if the engine is Ray; see `cluster.connected`.
    """
    return this_machine(execution) if execution.engine == LOCAL else nodes_of(execution)
