"""A compiled request: the study's plan and the settings of its computation.

`lce run` compiles a request before it starts a server. The flow needs the same plan, but its
parameters are small JSON. Within one process the flow therefore reuses the prepared request if
study and execution are equal. The flow of a deployment has no prepared request and compiles one.
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
    """A study, its execution settings and the plan compiled from both."""

    study: str
    """Name of a shipped study, or path of a study file."""
    execution: Execution
    plan: StudyPlan
    where: str
    """The study's file, as error messages name it."""


# Bound to a `with` block, not to the process, so that a later request cannot get an old plan.
_PREPARED: ContextVar[Request | None] = ContextVar("prepared", default=None)


def compile_request(study: str, execution: Execution) -> Request:
    """Read and compile the study.

    Raises:
      SpecError: if the request is wrong.
      DataError: if the corpus exists but cannot be read.
    """
    spec, where = open_study(study, execution)
    with FileFacts(execution.home).in_use():
        plan = compile_study(spec, execution.data_folders, execution.model_folders, where)
    return Request(study, execution, plan, where)


@contextlib.contextmanager
def prepared(request: Request) -> Iterator[None]:
    """Make `request_for` return this request inside the `with` block if its arguments match."""
    token = _PREPARED.set(request)
    try:
        yield
    finally:
        _PREPARED.reset(token)


def request_for(study: str, execution: Execution) -> Request:
    """Return the prepared request if its study and execution match, else compile a new one.

    Raises the errors of `compile_request`.
    """
    ready = _PREPARED.get()
    if ready is not None and (ready.study, ready.execution) == (study, execution):
        return ready
    return compile_request(study, execution)
