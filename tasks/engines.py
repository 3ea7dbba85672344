"""Find the hardware on which an execution computes: this machine, or a Ray cluster."""

from __future__ import annotations

from lce_core.execution import LOCAL, Execution
from tasks.machines import Machines, this_machine
from tasks.ray_engine.cluster import nodes_of


def machines_for(execution: Execution) -> Machines:
    """Return the hardware of this machine, or that of all Ray nodes if the engine is Ray."""
    return this_machine(execution) if execution.engine == LOCAL else nodes_of(execution)
