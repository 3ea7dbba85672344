"""Outcome of a flow, which `lce run` can read even if Prefect's server has died.

A flow's result passes through Prefect's client, which loses the result if no server answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass
class Outcome:
    """Result or error of the flow's function; exactly one is set once the function has ended."""

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """The exception that ended the function; may be a KeyboardInterrupt."""
    flow_run: UUID | None = None
    """Id of the flow run in Prefect; None in a deployment's run."""
    ended_in_prefect: str = ""
    """"cancelled" or "deleted" if a user has done this to the flow run in Prefect, else ""."""
