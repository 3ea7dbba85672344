"""Outcome of a flow; Prefect's client returns a flow's result only if the server answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass
class Outcome:
    """Result or error of the flow's function. When the function has ended, exactly one is set."""

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """May be a KeyboardInterrupt."""
    flow_run: UUID | None = None
    """Id in Prefect; None if a deployment created it."""
    ended_in_prefect: str = ""
    """"cancelled" or "deleted", if a user did that in Prefect."""
