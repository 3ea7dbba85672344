"""Outcome of a run, kept in case Prefect's server is lost before the run reports it.

A flow's result passes through Prefect's client, which loses it if no server answers. The computed
steps are in the store nevertheless, and the command can report them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass
class Outcome:
    """Result or error of the flow's function. One of them is set when the function ends."""

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """The exception that ended the function; may be a KeyboardInterrupt."""
    flow_run: UUID | None = None
    """Id of the flow run in Prefect; set only for a command, not for a deployment."""
    ended_in_prefect: str = ""
    """What a user did to the flow run in Prefect: "cancelled", "deleted", or "" for neither."""
