"""What a run came to, kept for the case that Prefect's server is gone when it is to be told.

A flow's result goes through Prefect's client, which loses it where no server answers. The steps are
in the store all the same, and the command can say so.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any
from uuid import UUID


@dataclass
class Outcome:
    """How the body of the flow ended; neither field is set before that."""

    result: dict[str, Any] | None = None
    error: BaseException | None = None
    """An interrupt too."""
    flow_run: UUID | None = None
    """The flow run of a command, which may be cancelled or deleted in Prefect."""
    ended_in_prefect: str = ""
    """"cancelled" or "deleted" if that is what interrupted the flow."""


_KEPT: ContextVar[Outcome | None] = ContextVar("outcome", default=None)


@contextlib.contextmanager
def outcome_kept() -> Iterator[Outcome]:
    """Within it the outcome is what the last flow of this context came to."""
    outcome = Outcome()
    token = _KEPT.set(outcome)
    try:
        yield outcome
    finally:
        _KEPT.reset(token)


@contextlib.contextmanager
def outcome_told() -> Iterator[Outcome]:
    """For the flow: takes its result, and its error by itself."""
    outcome = _KEPT.get() or Outcome()
    try:
        yield outcome
    except BaseException as error:
        outcome.error = error
        raise
