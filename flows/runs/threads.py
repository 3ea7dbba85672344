"""Compute units in threads of this process, without Prefect."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from flows.runs.scheduling import Answer, Submit
from lce_core.execution import Execution
from tasks.agenda import Taken
from tasks.slots import Slot
from tasks.units import compute_with_retries


def in_threads(execution: Execution, stop: threading.Event) -> Submit:
    """Return a function that computes each unit in its own thread; `stop` ends the retries."""
    settings = execution.model_dump(mode="json")

    def submit(taken: Taken, slot: Slot, end: Callable[[Answer], None]) -> None:
        arguments = (taken.unit.to_json(), settings, slot.to_json(), taken.shared, stop)
        # A daemon thread, so that an interrupted process can exit without waiting for it.
        threading.Thread(target=_compute, args=(end, *arguments), daemon=True).start()

    return submit


def _compute(end: Callable[[Answer], None], *arguments: Any) -> None:
    try:
        answer: Answer = compute_with_retries(*arguments)
    except BaseException as error:  # noqa: BLE001 - whoever waits for the unit books it
        answer = error
    end(answer)
