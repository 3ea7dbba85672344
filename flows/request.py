"""What was asked for, compiled: the study's plan and how it is to be computed.

`lce run` checks a request before it starts a server, and the flow, whose parameters are small JSON,
needs the same plan. In the same process it takes the one that is prepared, if that is exactly what
it was asked for; a deployment's flow, which nobody prepared anything for, compiles its own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass

from flows.settings import open_study
from lce_core.execution import Execution
from lce_core.store.file_facts import FileFacts
from lce_core.study.plan import StudyPlan, compile_study


@dataclass(frozen=True)
class Request:
    """A study as asked for, and what follows from it."""

    study: str
    """A shipped study's name, or the path of a study file."""
    execution: Execution
    plan: StudyPlan
    where: str
    """The study's file, for errors."""


# Bound to a `with` block, not to the process: a later request can never meet an older plan.
_PREPARED: ContextVar[Request | None] = ContextVar("prepared", default=None)


def compile_request(study: str, execution: Execution) -> Request:
    """Reads and compiles the study.

    Raises:
      SpecError: the request is wrong.
      DataError: the corpus is there but cannot be read.
    """
    spec, where = open_study(study, execution)
    with FileFacts(execution.home).in_use():
        plan = compile_study(spec, execution.data_folders, execution.model_folders, where)
    return Request(study, execution, plan, where)


@contextlib.contextmanager
def prepared(request: Request) -> Iterator[None]:
    """Within it `request_for` gives this request to whoever asks for the same."""
    token = _PREPARED.set(request)
    try:
        yield
    finally:
        _PREPARED.reset(token)


def request_for(study: str, execution: Execution) -> Request:
    """The prepared request if it is this one, else compiled anew; errors of `compile_request`."""
    ready = _PREPARED.get()
    if ready is not None and (ready.study, ready.execution) == (study, execution):
        return ready
    return compile_request(study, execution)
