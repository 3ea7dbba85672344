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
    """The outcome of the flow's body. `result` and `error` are set when the body ends."""

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """The exception that ended the body; may be an interrupt."""
    flow_run: UUID | None = None
    """Id of a command's flow run, which a user may cancel or delete in Prefect."""
    ended_in_prefect: str = ""
    """Set to "cancelled" or "deleted" if that interrupted the flow."""
