"""Retries without Prefect: transient failures, as often as an execution allows."""

from __future__ import annotations

import threading

import pytest

from lce_core.errors import StepsFailedError, WorkerLostError
from tasks import retries
from tasks.retries import with_retries


def failed(kind: str) -> StepsFailedError:
    event = {"fingerprint": "a", "class": kind, "error": "OSError", "message": "gone"}
    return StepsFailedError("unit", [event])


LOST = WorkerLostError("unit", "a worker that ended", "one that lives", "read the log")


class Attempts:
    """Raises these errors in turn, then succeeds."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.number = errors, 0

    def __call__(self) -> str:
        self.number += 1
        if self.number <= len(self.errors):
            raise self.errors[self.number - 1]
        return "done"


@pytest.fixture(autouse=True)
def no_delay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "DELAY_SECONDS", [0.0, 0.0])


def test_transient_failures_are_retried_beyond_the_last_delay() -> None:
    compute = Attempts(failed("transient"), LOST, failed("out_of_memory"), LOST)
    assert with_retries(compute, 5, threading.Event()) == "done"
    assert compute.number == 5


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_the_last_attempt_raises(max_attempts: int) -> None:
    compute = Attempts(*[LOST] * 9)
    with pytest.raises(WorkerLostError):
        with_retries(compute, max_attempts, threading.Event())
    assert compute.number == max_attempts


@pytest.mark.parametrize("kind", ["data", "non_finite", "disk_full", "defect", "unavailable"])
def test_permanent_failures_are_not_retried(kind: str) -> None:
    compute = Attempts(failed(kind))
    with pytest.raises(StepsFailedError):
        with_retries(compute, 5, threading.Event())
    assert compute.number == 1


def test_nothing_is_retried_once_the_run_is_to_stop() -> None:
    stop, compute = threading.Event(), Attempts(LOST)
    stop.set()
    with pytest.raises(WorkerLostError):
        with_retries(compute, 5, stop)
    assert compute.number == 1
