"""How a run ends: what came of its flow, and how the process of its command must exit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass
class ProcessEnd:
    """Exit code of a command's process, which the entry point of `lce` reads afterwards."""

    skips_handlers: bool = False
    """Exit without atexit handlers, because Prefect's server or Ray's head died. Without its
    server, Prefect's handler retries each pending record for minutes. Without its head, Ray's
    handler has crashed with a segmentation fault."""


@dataclass
class Outcome:
    """Result or error of the flow's function. When the function has ended, exactly one is set.

    Prefect's client returns a flow's result only if the server answers.
    """

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """May be a KeyboardInterrupt."""
    flow_run: UUID | None = None
    """Id in Prefect; None if a deployment created it."""
    ended_in_prefect: str = ""
    """"cancelled" or "deleted", if a user did that in Prefect."""
